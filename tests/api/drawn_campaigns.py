"""drawn_campaigns.py URL TOKEN PID SEED FIRST COUNT: campaigns drawn at random, each asked as plan, dry run and campaign of a
daemon.

A campaign has any preset model or one near it, any cluster, trainer and workload, and a space of any keys. Whatever it is, it
is accepted or refused with a reason, soon; plan and dry run give one answer; layouts listed and tried are legal and of the
space; the simulated campaign ends, each view of it answers, and its exports are its layouts when they are imported. TAP lines
without numbers; a failure shows its case, which SEED and its number draw again."""
import json
import os
import random
import re
import sys
import time
import urllib.error
import urllib.request

url, token, pid, seed, first, count = sys.argv[1:7]
TICKS = os.sysconf("SC_CLK_TCK")
# Processor time of one answer, in seconds: documents promise two of the clock on a machine that has time.
SOON = 2.0
# A campaign of three simulated trials, its space prepared: the clock of a busy machine.
END = 300
TRAINERS = ("partune", "megatron", "torchtitan", "deepspeed", "any", None)
RULES = ("every answer comes soon", "a refusal has status, field and reason",
         "the advised change of a space makes a layout legal", "a plan of nothing says why",
         "a plan lists layouts of the space", "what a plan lists is legal and fits", "check and plan give one time",
         "plan and dry run give one answer", "what a dry run accepts is accepted", "every campaign ends",
         "a search tries layouts of the space", "every view of a campaign answers", "a size without a layout says why",
         "an export is the same layout when it is imported", "the daemon lives")
WRONG = {rule: [] for rule in RULES}  # what went wrong
SLOWEST = {}  # what was asked -> seconds, case


def ask(path, body=None):
    """Status and text of an answer."""
    request = urllib.request.Request(url + path, headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"})
    if body is not None:
        request.data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def get(path):
    return json.loads(ask(path)[1])


def items(path):
    return get(path + "?page_size=1000")["items"]


# ---- what is drawn

class Drawn:
    """Campaign NUMBER of SEED."""

    def __init__(self, number):
        self.number = number
        self.random = random.Random(f"{seed}/{number}")
        self.cluster = self.draw_cluster()
        self.model = self.draw_model()
        self.learned = (MODELS[self.model] if isinstance(self.model, str) else self.model).get("positions") == "learned"
        self.space = self.draw_space()
        self.job = {"model": self.model, "cluster": self.cluster, "workload": self.draw_workload()}
        trainer = self.random.choice(TRAINERS)
        if trainer:
            self.job["trainer"] = trainer
        if self.space:
            self.job["space"] = self.space
        if self.random.random() < 0.15:
            self.job["constraints"] = {"memory_headroom": self.random.choice((0, 0.1, 0.3))}
        if trainer == "any" and self.random.random() < 0.5:
            self.job["rules"] = self.random.choice([t for t in TRAINERS if t])
        self.campaign = self.draw_campaign()

    def draw_cluster(self):
        drawn = {"profile": self.random.choice(list(CLUSTERS)), "nodes": self.random.choice((1, 1, 2, 3, 4, 6, 8, 16, 64, 72, 512, 1024))}
        if self.random.random() < 0.3:
            drawn["devices_per_node"] = self.random.choice((1, 2, 3, 4, 6, 8))
        return drawn

    def draw_model(self):
        name = self.random.choice(list(MODELS))
        if self.random.random() < 0.6:
            return name
        model = json.loads(json.dumps(MODELS[name]))
        for key in self.random.sample(("layers", "vocab", "seq", "ffn", "hidden"), self.random.choice((1, 2))):
            if model.get(key):
                model[key] = max(1, int(model[key] * self.random.choice((0.25, 0.5, 0.75, 1.5, 2))))
        if "pattern" in model:
            model["layers"] = MODELS[name]["layers"]
        return model

    def draw_workload(self):
        devices = self.cluster["nodes"] * self.cluster.get("devices_per_node", CLUSTERS[self.cluster["profile"]]["devices_per_node"])
        batches = [devices * n for n in (1, 2, 4, 8, 12, 32)] if self.random.random() < 0.8 else [1, 60, 256, 1024, 4096]
        workload = {"global_batch": self.random.choice(batches)}
        if self.random.random() < 0.15:
            workload["global_batch"] = sorted(self.random.sample(batches, 3))
        for key, values, share in (("seq", (1024, 4096, 8192, 32768, 131072), 0.3), ("precision", PRECISIONS, 0.3),
                                   ("optimizer", ("adamw", "sgd", "lamb", "muon"), 0.1)):
            if self.random.random() < share and not (key == "seq" and self.learned):
                workload[key] = self.random.choice(values)
        return workload

    def draw_values(self, key):
        """Values of KEY in a space: some that may be written at all, legal or not."""
        if self.random.random() < 0.4:
            return "auto"
        schema = LAYOUT[key]
        if "enum" in schema:
            every = schema["enum"]
        elif key == "stages":
            every = ["even", "balanced", "balanced-embedding", "balanced-loss"]
        elif schema.get("maximum", 2) <= 3:
            every = list(range(schema.get("minimum", 0), schema["maximum"] + 1))
        else:
            every = [1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 64, 100]
        values = self.random.sample(every, self.random.randint(1, min(5, len(every))))
        # What most layouts are legal with, mostly.
        usual = schema.get("default", every[0])
        return values if usual in values or self.random.random() < 0.2 else [usual] + values

    def draw_space(self):
        keys = [k for k in LAYOUT if k not in ("cluster", "dp", "edp", "global_batch", "world")]
        how_many = self.random.choice((0, 0, 1, 2, 3, 4, 6, 10, 20, len(keys)))
        space = {key: self.draw_values(key) for key in sorted(self.random.sample(keys, how_many))}
        if self.random.random() < 0.1:
            space["world"] = self.random.choice(("auto", [8], [1, 2, 4, 8, 16, 32, 64]))
        return space

    def draw_campaign(self):
        campaign = dict(self.job, name=f"drawn {self.number}", budget={"trials": 3})
        campaign["launcher"] = {"kind": "simulated", "speed": 1000000, "seed": self.number}
        if self.random.random() < 0.3:
            campaign["launcher"]["failures"] = self.random.choice((0.1, 0.5, 1))
        search = {"seed": self.number, "parallel": self.random.choice((1, 1, 2, 3)), "method": self.random.choice(("bayes", "bayes", "random", "grid"))}
        campaign["search"] = search
        if self.random.random() < 0.3:
            campaign["baseline"] = self.random.choice(("naive", "default", {"tp": self.random.choice((1, 2, 8)), "micro_batch": 1}))
        if search["method"] == "bayes" and self.random.random() < 0.3:
            campaign["trial"] = {"fidelity": "auto"}
        if self.random.random() < 0.2:
            campaign["objective"] = "tokens_per_s_per_device"
        return campaign


# ---- what must be so

def wrong(rule, case, what):
    WRONG[rule].append(f"campaign {case.number}: {str(what)[:400]}")


def cpu():
    """Processor seconds of each of the daemon's threads so far."""
    spent = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        spent[thread] = (int(fields[11]) + int(fields[12])) / TICKS
    return spent


def soon(case, what, path, body):
    """The answer to POST, None if it was refused; a refusal has a reason."""
    before, clock = cpu(), time.time()
    status, text = ask(path, body)
    clock = time.time() - clock
    # One thread answers; those of searches work at the same time.
    took = min(clock, max(spent - before.get(thread, 0) for thread, spent in cpu().items()))
    SLOWEST[what] = max(SLOWEST.get(what, (0, 0)), (took, case.number))
    if took > SOON:
        wrong("every answer comes soon", case, f"{what} took {took:.1f} s")
    if status in (200, 201):
        return json.loads(text)
    refusal = json.loads(text) if text.startswith("{") else {}
    if status != 422 or not refusal.get("detail") or not (refusal.get("pointer") or refusal.get("rules")):
        wrong("a refusal has status, field and reason", case, f"{what}: {status} {text}")
    return None


def remedy(case):
    """The change that a refused space is advised makes a layout legal."""
    status, text = ask("/v1/campaigns?dry_run=true", case.campaign)
    advice = re.search('no legal layout.*smallest change: (".*); nearest: ', json.loads(text)["detail"]) if status == 422 else None
    if advice:
        space = dict(case.space)
        for key, values in re.findall(r'"(\w+)": (\[[^]]*\])', advice[1]):
            space[key] = json.loads(values)
        again = json.loads(ask("/v1/campaigns?dry_run=true", dict(case.campaign, space=space))[1])
        if again.get("detail", "").startswith("no legal layout among"):
            wrong("the advised change of a space makes a layout legal", case, f"{advice[1]}: {again['detail']}")


def outside(case, layout):
    """Keys of LAYOUT whose values the space does not have. A key that does nothing in a layout, as the schedule of one stage,
    has its default whatever the space says; degrees and batches always do something."""
    strict = ("tp", "cp", "pp", "ep", "etp", "zero", "micro_batch", "world", "recompute", "precision")
    keys = []
    for key, values in case.space.items():
        usual = LAYOUT[key].get("default", "ep-aware" if key == "zero_scope" else None)
        value = layout.get(key, usual)
        if values != "auto" and value not in values and (key in strict or value not in (usual, None)):
            keys.append(f"{key} {value}")
    return ", ".join(keys)


def plan(case):
    answer = soon(case, "plan", "/v1/plan", dict(case.job, top=8))
    if answer is None:
        return None
    if not answer["items"] and not answer.get("reason"):
        wrong("a plan of nothing says why", case, answer)
    for item in answer["items"]:
        keys = outside(case, item["layout"])
        if keys:
            wrong("a plan lists layouts of the space", case, f"{item['text']} is outside by {keys}")
    for item in answer["items"][:2]:
        check(case, item)
    return answer


def check(case, item):
    job = {key: value for key, value in case.job.items() if key != "space"}
    job["layout"] = item["layout"]
    if isinstance(job["workload"]["global_batch"], list):
        return
    answer = soon(case, "check", "/v1/check", job)
    if answer is None or not answer["legal"] or not answer["fits"]:
        wrong("what a plan lists is legal and fits", case, f"{item['text']}: {answer and answer['rules']}")
    elif answer["cost"] != item["seconds"]:
        wrong("check and plan give one time", case, f"{item['text']}: {answer['cost']} and {item['seconds']}")


def agree(case, planned, dry):
    if planned is None or dry is None or not (planned["exact"] and dry["exact"]):
        return
    for key in ("legal", "fitting"):
        if planned[key] != dry[key]:
            wrong("plan and dry run give one answer", case, f"{key}: {planned[key]} and {dry[key]}")


def views(case, campaign):
    """Each GET of a campaign that is over."""
    for path in GETS:
        status, text = ask(path.replace("{id}", campaign["id"]).replace("{n}", "1").replace("{target}", case.random.choice(TARGETS)
                           + "?allow_simulated=true") + ("?x=tp&y=micro_batch" if path.endswith("surface") else ""))
        # A target may have rules, a surface wants keys with values, and on a busy machine it may come out late that none fits.
        refused = "{target}" in path or path.endswith("surface") or campaign["state"] == "paused"
        if status not in ((200, 404, 409, 422) if refused else (200, 404)):
            wrong("every view of a campaign answers", case, f"GET {path}: {status} {text}")


def size(case):
    """On each number of devices a layout, or why there is none."""
    job = {key: value for key, value in case.job.items() if key not in ("space", "constraints")}
    answer = soon(case, "size", "/v1/size", job)
    for item in answer["items"] if answer else ():
        if item.get("layout") is None and not item.get("reason"):
            wrong("a size without a layout says why", case, item)


def project(case, campaign):
    if campaign["best"]:
        scaling = case.random.choice(("strong", "weak"))
        soon(case, "project", "/v1/project", {"campaign": campaign["id"], "devices": [8, 64], "scaling": scaling})


# A trainer's targets that have an importer, which reads what they write.
READ_BACK = {"megatron": ("megatron", ("megatron", "megatron-script", "slurm+megatron-script")),
             "torchtitan": ("torchtitan", ("torchtitan", "torchtitan-toml")), "deepspeed": ("deepspeed", ("deepspeed",))}


def read_back(case, campaign):
    """What a target writes without a gap is the same layout when it is imported."""
    importer, targets = READ_BACK.get(case.job.get("trainer"), (None, ()))
    for trial in items(f"/v1/campaigns/{campaign['id']}/trials")[:3]:
        layout = trial["layout"]
        for target in targets:
            status, text = ask(f"/v1/campaigns/{campaign['id']}/export/{target}?trial={trial['n']}&allow_simulated=true")
            if status != 200 or trial["fidelity"]:
                continue
            status, text = ask("/v1/import/" + importer, {"model": case.model, "world": layout["world"], "text": text})
            got = json.loads(text).get("layout", {})
            keys = [f"{key} {layout.get(key)} and {got.get(key)}" for key in sorted((set(layout) | set(got)) - {"global_batch"})
                    if layout.get(key, LAYOUT[key].get("default")) != got.get(key, LAYOUT[key].get("default"))]
            if status != 200 or keys:
                wrong("an export is the same layout when it is imported", case, f"{target}, {trial['text']}: {keys or text}")


def run(case):
    campaign = soon(case, "campaign", "/v1/campaigns", case.campaign)
    if campaign is None:
        return None
    path = "/v1/campaigns/" + campaign["id"]
    until = time.time() + END
    while campaign["state"] == "running" and time.time() < until:
        time.sleep(0.02)
        campaign = get(path)
    if campaign["state"] not in ("done", "failed", "paused"):
        wrong("every campaign ends", case, f"{campaign['state']} {campaign['reason']} after {END} s")
        ask(path + ":cancel", {})
    for trial in items(path + "/trials"):
        keys = outside(case, trial["layout"]) if trial["kind"] == "search" else ""
        if keys:
            wrong("a search tries layouts of the space", case, f"{trial['text']} is outside by {keys}")
    views(case, campaign)
    project(case, campaign)
    read_back(case, campaign)
    return campaign


def one(number):
    case = Drawn(number)
    try:
        dry = soon(case, "dry run", "/v1/campaigns?dry_run=true", case.campaign)
        agree(case, plan(case), dry)
        if dry is None:
            remedy(case)
        if number % 4 == 0:
            size(case)
        campaign = run(case)
        # On a busy machine one of them may have counted to the end that nothing fits, and the other not.
        late = dry is None and campaign["state"] == "paused" if campaign else dry is None or not dry["exact"]
        if (dry is None) != (campaign is None) and not late:
            wrong("what a dry run accepts is accepted", case, f"dry run {dry and 'accepted'}, campaign {campaign and 'accepted'}")
        return campaign
    except OSError as e:
        wrong("the daemon lives", case, f"{e}: {json.dumps(case.campaign)}")
        raise


MODELS = {m["name"]: m for m in items("/v1/presets/models")}
CLUSTERS = {c["name"]: c for c in items("/v1/presets/clusters")}
TARGETS = [t["name"] for t in items("/v1/exporters")]
API = get("/openapi.json")
LAYOUT = API["components"]["schemas"]["Layout"]["properties"]
PRECISIONS = LAYOUT["precision"]["enum"]
GETS = [path for path, methods in API["paths"].items()
        if "get" in methods and path.startswith("/v1/campaigns/") and not path.endswith("/events")]

ran = 0
try:
    for number in range(int(first), int(first) + int(count)):
        campaign = one(number)
        ran += campaign is not None
except OSError:
    pass
for rule, lines in WRONG.items():
    print("not ok" if lines else "ok", rule)
    for line in lines[:5]:
        print("#  ", line)
print("not ok" if ran * 5 < int(count) else "ok", f"some are accepted: {ran} of {count}")
print("#", ", ".join(f"{what}: at most {took:.2f} s (campaign {number})" for what, (took, number) in SLOWEST.items()))
