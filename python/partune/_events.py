"""The event file (docs/reference/protocol.md): one JSON object a line, one write() a line.

Rank 0 writes. Another rank that fails alone appends the one line that it has to say, because rank 0
may wait for it in a collective.
"""

import json
import math
import os
import time


def finite(tree):
    """TREE with null in place of numbers that are not finite."""
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    if isinstance(tree, dict):
        return {key: finite(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [finite(value) for value in tree]
    return tree


class Events:
    """Appends to PATH; None: nothing is written. A SILENT rank writes only what is forced."""

    def __init__(self, path, silent=False):
        self._path = path
        self._silent = silent
        self._fd = -1
        self._failed = False

    def write(self, event, force=False, **keys):
        """Append one event. OSError if the disk refuses it; then nothing more is written."""
        if not self._path or self._failed or (self._silent and not force):
            return
        line = {"v": 1, "event": event, "t": round(time.time(), 6), **finite(keys)}
        data = (json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n").encode()
        try:
            if self._fd < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            if os.write(self._fd, data) != len(data):
                raise OSError(f"{self._path}: a line was written in part")
        except OSError:
            self._failed = True
            raise

    def close(self):
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
