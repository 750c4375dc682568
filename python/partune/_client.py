"""The daemon's API: campaigns, trials, plans. docs/reference/python.md has a table."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List

from partune import _chart
from partune._http import Connection, Event

if TYPE_CHECKING:
    from partune import types

FINAL = ("done", "cancelled", "failed")


def read_campaign(campaign):
    """A campaign as a dict: given as one, or read from a path; lines with // are comments."""
    if not isinstance(campaign, (str, os.PathLike)):
        return campaign
    with open(campaign, encoding="utf-8") as file:
        lines = [line for line in file if not line.lstrip().startswith("//")]
    return json.loads("".join(lines))


class Client:
    """A daemon at SERVER, else $PARTUNE_SERVER, else this machine's.

    The token is TOKEN, else $PARTUNE_TOKEN, else that of the daemon with the data directory DATA.
    """

    def __init__(self, server=None, token=None, data=None, cafile=None, timeout=60):
        self._http = Connection(server, token, data, cafile, timeout)

    def __repr__(self):
        return f"partune.Client({self._http.server!r})"

    def submit(self, campaign) -> Campaign:
        """Start a campaign, given as dict or as the path of a campaign file."""
        made = self._http.json("POST", "/v1/campaigns", body=read_campaign(campaign))
        return Campaign(self._http, made["id"])

    def dry_run(self, campaign) -> Dict[str, Any]:
        """What submit() would start: numbers of layouts, expected trials and seconds."""
        body = read_campaign(campaign)
        return self._http.json("POST", "/v1/campaigns", {"dry_run": True}, body)

    def campaign(self, id="last") -> Campaign:
        """One campaign by its id; "last" is the newest."""
        if id == "last":
            query = {"sort": "-created", "page_size": 1}
            items = self._http.json("GET", "/v1/campaigns", query)["items"]
            if not items:
                raise LookupError("there is no campaign yet")
            id = items[0]["id"]
        found = Campaign(self._http, id)
        found.show()
        return found

    def campaigns(self, **filters) -> List[types.CampaignSummary]:
        """Summaries of campaigns; filters: state, tag, name."""
        return list(self._http.items("/v1/campaigns", **filters))

    def check(self, request) -> types.Check:
        """Check that one layout is legal and fits. REQUEST as for POST /v1/check."""
        return self._http.json("POST", "/v1/check", body=read_campaign(request))

    def plan(self, request, **more) -> types.Plan:
        """Layouts ranked by the cost model. REQUEST as for POST /v1/plan; MORE replaces its keys."""
        return self._http.json("POST", "/v1/plan", body={**read_campaign(request), **more})

    def size(self, request, **more) -> types.Sizing:
        """Compare device counts. REQUEST as for POST /v1/size; MORE (devices, tokens, days) replaces its keys."""
        return self._http.json("POST", "/v1/size", body={**read_campaign(request), **more})

    def follow(self, since=None, patience=300) -> Iterator[Event]:
        """Events of all campaigns, like Campaign.follow(), but without end."""
        return self._http.events("/v1/events", since, patience)


class Campaign:
    """One campaign of a daemon. Only its id is kept: every call asks the daemon."""

    def __init__(self, http, id):
        self._http = http
        self.id = id
        self._path = f"/v1/campaigns/{id}"

    def __repr__(self):
        return f"<partune campaign {self.id}>"

    def show(self) -> types.Campaign:
        """The campaign's resource."""
        return self._http.json("GET", self._path)

    @property
    def state(self) -> str:
        return self.show()["state"]

    def best(self) -> types.Standing:
        """The best layout so far."""
        return self._http.json("GET", self._path + "/best")

    def baseline(self) -> types.Standing:
        return self._http.json("GET", self._path + "/baseline")

    def trials(self, **filters) -> List[types.Trial]:
        """The resources of all trials; filters: state, kind, sort."""
        return list(self._http.items(self._path + "/trials", **filters))

    def trial(self, n) -> types.Trial:
        return self._http.json("GET", f"{self._path}/trials/{n}")

    def steps(self, n) -> List[types.Step]:
        return list(self._http.items(f"{self._path}/trials/{n}/steps"))

    def why(self, n, against="baseline") -> types.Why:
        """Why trial N is faster or slower than another: its seconds by class and by changed key."""
        query = {"against": against}
        return self._http.json("GET", f"{self._path}/trials/{n}/why", query=query)

    def log(self, n, stream="stdout") -> str:
        return self._http.text("GET", f"{self._path}/trials/{n}/log", {"stream": stream})

    def results(self) -> List[Dict[str, Any]]:
        """One flat dict per trial: its number, kind, state, layout keys and main numbers."""
        return [flat(trial) for trial in self.trials(sort="n")]

    def frame(self):
        """results() as a pandas DataFrame with the trial's number as index."""
        import pandas

        return pandas.DataFrame(self.results()).set_index("n")

    def importance(self) -> Dict[str, float]:
        """The share of each layout key in the variance of throughput."""
        return self._http.json("GET", self._path + "/importance")["shares"]

    def export(
        self, target, trial=None, allow_loss=False, allow_simulated=False, output=None
    ) -> str:
        """The winner (or TRIAL) as TARGET's file: its text, also written to OUTPUT if given."""
        query = {
            "trial": trial,
            "allow_loss": allow_loss or None,
            "allow_simulated": allow_simulated or None,
        }
        text = self._http.text("GET", f"{self._path}/export/{target}", query)
        if output:
            with open(output, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def pause(self):
        return self._do("pause")

    def resume(self):
        return self._do("resume")

    def cancel(self):
        return self._do("cancel")

    def verify(self, pairs=5, steps=50):
        """Re-run winner and baseline in PAIRS interleaved pairs; then follow() or wait()."""
        return self._do("verify", {"pairs": pairs, "steps": steps})

    def delete(self):
        self._http.json("DELETE", self._path)

    def _do(self, verb, body=None):
        return self._http.json("POST", f"{self._path}:{verb}", body=body)

    def follow(self, since=0, patience=300) -> Iterator[Event]:
        """Events (kind, data, id) until the campaign has ended, across restarts of the daemon.

        They begin with the first that the daemon keeps, or after the id SINCE; None: from now on.
        Raises OSError when no daemon has answered for PATIENCE seconds.
        """
        if since is None and self.state in FINAL:
            return
        for event in self._http.events(self._path + "/events", since, patience):
            yield event
            if event.kind == "campaign" and event.data["state"] in FINAL:
                now = self.show()  # it may have been resumed, or verified, since that event
                if now["state"] in FINAL and now["ended"] == event.data["ended"]:
                    return

    def wait(self, timeout=None) -> types.Campaign:
        """The campaign's resource once it has ended or is paused.

        Raises TimeoutError after TIMEOUT seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            now = self.show()
            if now["state"] in FINAL or now["state"] == "paused":
                return now
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"campaign {self.id} is still {now['state']}")
            time.sleep(0.5)

    def _repr_html_(self):
        return _chart.campaign_html(self.show(), self.trials(sort="n"))


def flat(trial):
    """A trial's resource as one row of a table."""
    step, memory = trial["step_ms"] or {}, trial["memory"]
    used = memory["measured"] or memory["planned"] or {}
    return {
        **{key: trial[key] for key in ("n", "kind", "state", "text")},
        **trial["layout"],
        **{key: trial[key] for key in ("tokens_per_s", "tokens_per_s_se", "mfu", "tokens_per_joule")},
        "simulated": trial["simulated"],
        "predicted_tokens_per_s": (trial["predicted"] or {}).get("tokens_per_s"),
        "step_ms": step.get("median"),
        "memory_bytes": used.get("total"),
        "failure": (trial["failure"] or {}).get("detail"),
    }
