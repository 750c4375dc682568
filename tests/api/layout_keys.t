#!/bin/sh
# Every layout key of the bundled trainer in real trials: a search over all of them at once, then, for each value that it did not try, a
# campaign from a planned layout with that value. Keys and values are those of the capability table (plan/keys.def, as print-keys prints
# it), so a key that is added is asked for here.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
[ -x "$PT_BUILD/partune-train" ] || { echo "1..0 # SKIP the trainer is not built"; exit 0; }
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
start
"$PT_BUILD/plan/print-keys" md >keys.md || exit 99
cat >trials.py <<'END'
"""trials.py URL TOKEN DATA: the campaigns; TAP lines without numbers."""
import glob, json, re, sys, time, urllib.error, urllib.request
url, token, data = sys.argv[1:]
TRIALS = 10   # of the search
MOST = 40     # layouts that are planned for what is left
WAIT = 900    # seconds of a campaign, on a busy machine

def ask(path, body=None):
    request = urllib.request.Request(url + path, headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"})
    if body is not None:
        request.data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        sys.exit(f"not ok {path} is answered: {refusal.code} {refusal.read().decode()[:600]}")

def capability():
    """{key: its values that the bundled trainer takes, or [] where the table does not list them}, and {key: its default}"""
    keys, default = {}, {}
    for line in open("keys.md").read().splitlines()[2:]:
        key, _, values, standard, trainers = [cell.strip(" `") for cell in re.split(r" ?\| ?", line)]
        ours = re.search(r"\bpartune(?: \(([^)]*)\))?", trainers)
        if ours or trainers == "all":
            keys[key] = re.sub("`", "", ours and ours[1] or values).split()
            default[key] = standard or "absent"
    return keys, default

KEYS, DEFAULT = capability()
del KEYS["cuda_graphs"] # for GPUs alone: tests/mpi/graphs.sh trains with them by the host's stand-in
# Experts, of which a shared one, for the keys of experts; five layers, which two stages do not divide.
JOB = {"model": {"name": "keys", "layers": 5, "hidden": 32, "heads": 4, "kv_heads": 4, "ffn": 64, "vocab": 96, "seq": 32,
                 "moe": {"experts": 4, "top_k": 2, "expert_ffn": 32, "shared_ffn": 32, "dense_layers": 1}},
       "workload": {"global_batch": [8, 16]}, "trainer": "partune",
       "cluster": {"name": "cores", "nodes": 1, "devices_per_node": 4, "oversubscribe": True,
                   "device": {"name": "core", "kind": "cpu", "gemm_tflops": 0.05, "memory_gib": 1, "memory_gbs": 10},
                   "links": [{"span": "all", "gbs": 5, "latency_us": 2}]}}
DERIVED = ("dp", "edp")
# Keys whose "auto" is one value, or more than a small test needs.
SPACE = {key: "auto" for key in KEYS if key not in DERIVED} | {
    "world": [2, 4], "tp": [1, 2], "cp": [1, 2], "pp": [1, 2], "vp": [1, 2], "ep": [1, 2], "etp": [1, 2],
    "stages": ["even", "balanced", "2,3"], "micro_batch": [1, 2], "threads": [1, 2],
    "shard": [0, 2], "global_batch": [8, 16], "precision": KEYS["precision"]}
# What a layout means by a key that it does not have.
DEFAULT["global_batch"] = "8"

def value_of(layout, key):
    return str(layout.get(key, DEFAULT[key]))

seen = {key: set() for key in KEYS}

def missing(key):
    """Values of KEY that no trial has run; None stands for one more, whichever."""
    listed = set(KEYS[key]) - seen[key]
    return listed or ({None} if len(seen[key]) < 2 else set())

def gain(layout):
    return sum(1 for key in KEYS if (value_of(layout, key) in missing(key)) or (None in missing(key) and value_of(layout, key) not in seen[key]))

def campaign(name, **changes):
    """Run it to its end; count what succeeded."""
    id = ask("/v1/campaigns", JOB | {"name": name, "search": {"seed": 3}, "trial": {"warmup_steps": 1, "min_steps": 2, "max_steps": 2}} | changes)["id"]
    end = time.time() + WAIT
    while ask(f"/v1/campaigns/{id}")["state"] not in ("done", "failed", "cancelled") and time.time() < end:
        time.sleep(0.1)
    trials = ask(f"/v1/campaigns/{id}/trials?page_size=100")["items"]
    for trial in trials:
        if trial["state"] == "ok":
            for key in KEYS:
                seen[key].add(value_of(trial["layout"], key))
    return [f"{t['state']}: {t['layout']}" for t in trials if t["state"] != "ok"] if trials else ["no trial"]

def tell(wrong, name):
    print(f"{'not ' if wrong else ''}ok {name}")
    for what in wrong:
        print("#", what)

def planned(key, value):
    """A planned layout with that value of KEY, or with any if VALUE is None, that has most of what is missing. The fastest ones of a
    space may all lack what a key needs, such as stages: then the degrees are asked for one by one."""
    fixed = {} if value is None else {key: [int(value) if value.isdigit() else value]}
    for degree in ({}, {"pp": [2]}, {"ep": [2]}, {"tp": [2]}, {"cp": [2]}):
        items = [i["layout"] for i in ask("/v1/plan", JOB | {"space": SPACE | degree | fixed, "top": 500, "fold": False})["items"]]
        items = [layout for layout in items if (value_of(layout, key) == value if value else value_of(layout, key) not in seen[key])]
        if items:
            return max(items, key=gain)
    return None

tell(campaign("search", space=SPACE, budget={"trials": TRIALS}), f"{TRIALS} trials of a search over all {len(SPACE)} keys succeed")
wrong, runs = [], 0
for key in KEYS:
    while missing(key) and runs < MOST:
        others = {str(v) for v in SPACE.get(key, []) if SPACE[key] != "auto"} - seen[key]
        value = min(missing(key) - {None} or others, default=None)
        layout = planned(key, value)
        if not layout:
            wrong.append(f"no planned layout has {key} {value or 'other than ' + str(seen[key])}")
            break
        runs += 1
        wrong += campaign(f"{key} {value}", space={"world": [layout["world"]]}, baseline=layout, budget={"trials": 1})
        if value_of(layout, key) not in seen[key]:
            break
tell(wrong, f"so do {runs} planned layouts with what it did not try")
for key in KEYS:
    tell([f"not run: {missing(key)}"] if missing(key) else [], f"{key} was run with {' '.join(sorted(seen[key]))}")
summaries = [e for name in glob.glob(data + "/campaigns/*/trials/*/*/events") for e in map(json.loads, open(name)) if e["event"] == "summary"]
tell([str(e["memory"]) for e in summaries if e["memory"]["planned"] != e["memory"]["measured"]] if summaries else ["no summary"],
     "every trial took the memory that was planned")
END
PYTHONDONTWRITEBYTECODE=1 python3 trials.py "$url" "$(cat data/token)" data >told 2>&1 || echo "not ok every layout key is run" >>told
told told
stop
is "the daemon exits cleanly" "$?" 0
finish
