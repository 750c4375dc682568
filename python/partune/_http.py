"""Requests to the daemon by urllib: JSON in and out, problems as exceptions, server-sent events."""

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import namedtuple

from partune._version import __version__

SERVER = "http://127.0.0.1:8417"
SILENT_S = 60  # the daemon's streams are never that silent
BROKEN = (OSError, http.client.HTTPException)  # URLError is an OSError

Event = namedtuple("Event", "kind data id")  # kind: campaign, trial, step or best


class Problem(Exception):
    """An error response: `status`, `detail`, `pointer` into the request body, broken `rules`."""

    def __init__(self, status, body):
        self.status = status
        self.body = body
        title = body.get("title") or http.client.responses.get(status, "")
        self.detail = body.get("detail") or title
        self.pointer = body.get("pointer")
        self.rules = body.get("rules") or []
        where = f" ({self.pointer})" if self.pointer else ""
        super().__init__(f"{status}: {self.detail}{where}")


def data_directory():
    """Where a daemon of this user keeps its data unless told otherwise."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return (
        os.environ.get("PARTUNE_DATA")
        or os.environ.get("STATE_DIRECTORY")
        or os.path.join(state, "partune")
    )


def token_of(data):
    """The token that a daemon on this machine keeps in its data directory; None without one."""
    try:
        with open(os.path.join(data or data_directory(), "token"), encoding="utf-8") as file:
            return file.read().split()[0]
    except (OSError, IndexError):
        return None


def problem(error):
    """The Problem in the answer that urllib raised as ERROR."""
    with error:
        text = error.read()
    try:
        body = json.loads(text)
    except ValueError:
        body = {"detail": text.decode("utf-8", "replace")[:200]}
    return Problem(error.code, body if isinstance(body, dict) else {})


class Connection:
    def __init__(self, server, token, data, cafile, timeout):
        self.server = (server or os.environ.get("PARTUNE_SERVER") or SERVER).rstrip("/")
        if not self.server.startswith(("http://", "https://")):
            raise ValueError(f"{self.server}: only http:// and https:// are supported here")
        self.timeout = timeout
        self._token = token or os.environ.get("PARTUNE_TOKEN") or token_of(data)
        handlers = []
        if urllib.parse.urlsplit(self.server).hostname in ("127.0.0.1", "::1", "localhost"):
            handlers.append(urllib.request.ProxyHandler({}))
        if cafile:
            context = ssl.create_default_context(cafile=cafile)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def open(self, method, path, query=None, body=None, timeout=None, **headers):
        """The response, to be closed; Problem where the daemon refuses, OSError without one."""
        given = {key: value for key, value in (query or {}).items() if value is not None}
        given = {k: str(v).lower() if isinstance(v, bool) else v for k, v in given.items()}
        url = self.server + path + ("?" + urllib.parse.urlencode(given) if given else "")
        headers["User-Agent"] = f"partune-python/{__version__}"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None
        if method in ("POST", "PATCH"):
            headers["Content-Type"] = "application/json"
            data = json.dumps(body or {}).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            return self._opener.open(request, timeout=timeout or self.timeout)
        except urllib.error.HTTPError as error:
            raise problem(error) from None

    def text(self, method, path, query=None, body=None):
        with self.open(method, path, query, body) as answer:
            return answer.read().decode("utf-8")

    def json(self, method, path, query=None, body=None):
        text = self.text(method, path, query, body)
        return json.loads(text) if text else None

    def items(self, path, **query):
        """All rows of a list, page by page."""
        token = None
        while True:
            page = self.json("GET", path, {"page_size": 1000, "page_token": token, **query})
            yield from page["items"]
            token = page["next_page_token"]
            if not token:
                return

    def events(self, path, since, patience):
        """Events after the id SINCE (None: from now on), across restarts and lost connections.

        OSError when no daemon has answered for PATIENCE seconds.
        """
        heard = time.monotonic()
        while True:
            try:
                headers = {} if since is None else {"Last-Event-ID": str(since)}
                with self.open("GET", path, timeout=SILENT_S, **headers) as stream:
                    heard = time.monotonic()
                    for event in read_events(stream):
                        since = event.id
                        yield event
                        heard = time.monotonic()
            except Problem as refused:
                if refused.status not in (429, 502, 503, 504):
                    raise
            except BROKEN:
                if time.monotonic() - heard > patience:
                    raise
            time.sleep(1)


def read_events(stream):
    """Events of a text/event-stream; one that was cut off is left out."""
    kind, data, number = None, [], None
    for line in stream:
        field, _, value = line.decode("utf-8").rstrip("\r\n").partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            number = int(value)
        elif not field and not value and data and line in (b"\n", b"\r\n"):
            yield Event(kind, json.loads("\n".join(data)), number)
            kind, data = None, []
