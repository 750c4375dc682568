#!/usr/bin/env python3
"""Which file calls which, from the built objects.

calls           "FROM TO SYMBOL" for each symbol of one source file that another one needs
circles         reads such lines; one circle of files a line, for each group of files that reach each other
reduce          reads lines "FROM TO ..."; "FROM TO" of the arrows that follow from no others (no circles)
"""
import collections
import glob
import os
import subprocess
import sys

FOLDERS = ("base", "plan", "kernels", "search", "db", "web", "trainer", "tuner")


def sources():
    """{object: its source}, of all that are built."""
    build, found = os.environ["PT_BUILD"], {}
    for folder in FOLDERS:
        for path in glob.glob(f"{build}/{folder}/**/*.o", recursive=True):
            name = os.path.basename(path)[:-2]
            where = os.path.relpath(os.path.dirname(path), build)
            for source in (f"{where}/{name}.c", f"{where}/{name.split('-', 1)[-1]}.c"):
                if os.path.exists(source):
                    found[path] = source
    return found


def calls():
    defined, needed = collections.defaultdict(set), collections.defaultdict(set)
    source_of = sources()
    symbols = subprocess.run(["nm", "-gA", *source_of], capture_output=True, text=True, check=True).stdout
    for line in symbols.splitlines():
        path, _, rest = line.partition(".o:")
        source, words = source_of[path + ".o"], rest.split()
        if len(words) == 3 and words[1] not in "Uw":
            defined[words[2]].add(source)
        elif len(words) == 2 and words[0] in "Uw":
            needed[source].add(words[1])
    for source in sorted(needed):
        for symbol in sorted(needed[source]):
            home = defined.get(symbol, set())
            if len(home) == 1 and source not in home:  # main is in many
                print(source, *home, symbol)


def read(lines):
    arrows = collections.defaultdict(dict)
    for line in lines:
        words = line.split()
        arrows[words[0]].setdefault(words[1], words[2] if len(words) > 2 else "")
    return arrows


def way(arrows, start, goal):
    """The shortest way from START to GOAL by at least one arrow, or None."""
    came, queue = {}, collections.deque([start])
    while queue:
        here = queue.popleft()
        for there in sorted(arrows.get(here, ())):
            if there not in came:
                came[there] = here
                if there == goal:
                    steps = [there]
                    while len(steps) == 1 or steps[-1] != start:
                        steps.append(came[steps[-1]])
                    return steps[::-1]
                queue.append(there)
    return None


def circles():
    arrows = read(sys.stdin)
    told = set()
    for file in sorted(arrows):
        steps = None if file in told else way(arrows, file, file)
        if steps:
            told.update(steps)
            print(steps[0] + "".join(f" -> {b} ({arrows[a][b]})" for a, b in zip(steps, steps[1:])))


def reduce():
    arrows = read(sys.stdin)
    for start in sorted(arrows):
        for goal in sorted(arrows[start]):
            others = [there for there in arrows[start] if there != goal]
            if not any(way(arrows, there, goal) for there in others):
                print(start, goal)


if __name__ == "__main__":
    {"calls": calls, "circles": circles, "reduce": reduce}[sys.argv[1]]()
