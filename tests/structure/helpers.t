#!/usr/bin/env python3
"""No helper of the shell tests is written three times: tests/api/tap.sh, tests/api/start.sh and the folders' own files are
there to be sourced. Functions are compared without their comments and blanks."""
import collections
import os
import re

FUNCTION = re.compile(r"^(\w+)\(\) \{(?:[^\n]*\}(?: #[^\n]*)?\n|[^\n]*\n(?:    [^\n]*\n|\n)*\}\n)", re.M)
LEAST = 100  # functions: fewer, and the scripts were not read

os.chdir(os.path.join(os.environ["PT_SRC"], "tests"))
homes, total = collections.defaultdict(set), 0
for at, below, found in os.walk("."):
    below[:] = [d for d in below if d not in ("node_modules", "data", "corpus")]
    for name in found:
        path = os.path.join(at, name)
        with open(path, "rb") as f:
            if not name.endswith(".sh") and f.readline() != b"#!/bin/sh\n":
                continue
            text = (b"\n" + f.read()).decode("utf-8")
        for match in FUNCTION.finditer(text):
            total += 1
            homes[" ".join(re.sub(r"\{ #[^\n]*", "{", match[0]).split())].add(path[2:])
often = {body: paths for body, paths in homes.items() if len(paths) > 2}
print("1..2")
print("%s 1 - functions are found" % ("ok" if total >= LEAST else "not ok"))
print("%s 2 - none is in three scripts" % ("not ok" if often else "ok"))
print("# %d functions" % total)
for body, paths in often.items():
    print("# %s: %s" % (body[:60], " ".join(sorted(paths))))
