"""simulated_check.py URL TOKEN ID HOOKS: walk all that a daemon says of ID, a simulated campaign that has been verified: each
GET of /openapi.json, the events, the projections and comparisons, the exports to every target, the webhooks in the file
HOOKS, and the metrics. Each says that it is simulated; none calls anything measured, verified or saved. TAP lines without
numbers."""
import json
import re
import sys
import time
import urllib.error
import urllib.request

url, token, campaign, hooks = sys.argv[1:5]
# Keys of values that are null, 0 or absent unless something was measured.
EMPTY = (None, 0, False, [], {})
# What may stand there, in comments and in JSON.
NOT_VERIFIED = re.compile(r'\bverified"?: "?no\b|"measured": false')
# They describe a machine, not the campaign's results.
PROFILE = ("cluster",)


def ask(path, body=None):
    request = urllib.request.Request(url + path, headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"})
    if body is not None:
        request.data = json.dumps(body).encode()
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def prose(text):
    return re.findall(r"\b(?:measured|saved|verified)\b", text, re.I)


def wrong(value, at=""):
    """Where VALUE, of JSON, calls a simulation a measurement."""
    if isinstance(value, str):
        return [f"{at}: {value[:80]}"] if prose(value) else []
    if isinstance(value, list):
        return [w for i, v in enumerate(value) for w in wrong(v, f"{at}/{i}")]
    if not isinstance(value, dict):
        return []
    found = []
    for key, v in value.items():
        here = f"{at}/{key}"
        if key in PROFILE:
            continue
        if key == "device_s" and not at.endswith("/budget") and value.get("simulated") is not True:
            found.append(here + " is not marked as simulated")
        if re.search(r"measured|verified|saved", key) and v not in EMPTY and not (key == "verified" and str(v).startswith("no")):
            found.append(here)
        elif key != "verified":
            found += wrong(v, here)
    return found


def wrong_line(line):
    """The same of a line, which may be JSON."""
    try:
        return wrong(json.loads(line))
    except ValueError:
        return [line] if prose(line) and not NOT_VERIFIED.search(line) else []


def judge(name, text, marked=True):
    try:
        trouble = wrong(json.loads(text))
    except ValueError:
        trouble = [w for line in text.splitlines() for w in wrong_line(line)]
    if marked and "simulated" not in text:
        trouble.append("does not say simulated: " + text[:200])
    print("not ok" if trouble else "ok", name)
    for line in trouble[:5]:
        print("#   ", line)


def paths():
    doc = json.loads(ask("/openapi.json"))
    for path, methods in doc["paths"].items():
        if "get" in methods and "{id}" in path and path.startswith("/v1/campaigns/") and "{target}" not in path:
            yield path


QUERY = {"surface": "?x=tp&y=micro_batch", "log": "?stream=events"}


def routes():
    best = json.loads(ask(f"/v1/campaigns/{campaign}"))["best"]["trial"]
    for path in paths():
        if path.endswith("/events"):
            continue
        last = path.rsplit("/", 1)[1]
        judge("GET " + path, ask(path.replace("{id}", campaign).replace("{n}", str(best)) + QUERY.get(last, "")))
    for item in json.loads(ask("/v1/campaigns"))["items"]:
        judge(f"the list has {item['name']} as simulated", json.dumps(item))
    for kind in ("baseline", "verify", "search"):
        for item in json.loads(ask(f"/v1/campaigns/{campaign}/trials?kind={kind}"))["items"][:3]:
            judge(f"a trial of kind {kind}", json.dumps(item))


def shares():
    """The shares of the layout keys are a map of their own: nothing else is in it."""
    answer = json.loads(ask(f"/v1/campaigns/{campaign}/importance"))
    each = answer.get("shares", {})
    keys = json.loads(ask("/openapi.json"))["components"]["schemas"]["Layout"]["properties"]
    good = set(answer) == {"simulated", "shares", "effects"} and answer["simulated"] is True
    good = good and set(each) <= set(keys) and abs(sum(each.values()) - 1) < 1e-6
    print("ok" if good else "not ok", "importance has its shares apart from the mark")
    effects = answer["effects"]
    good = set(effects) == set(each) and all(
        min(e["ratio"] for e in values) <= 1 + 1e-9 and max(e["ratio"] for e in values) >= 1 - 1e-9
        for values in effects.values()
    )
    print("ok" if good else "not ok", "and the direction of each key's values, about 1")


def events():
    request = urllib.request.Request(f"{url}/v1/campaigns/{campaign}/events?last_event_id=0", headers={"Authorization": "Bearer " + token})
    seen, kind, end = {}, None, time.time() + 20
    with urllib.request.urlopen(request, timeout=20) as stream:
        while time.time() < end and set(seen) < {"campaign", "trial", "step", "best"}:
            line = stream.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: ") and kind:
                seen[kind] = line[6:]
    for kind in ("campaign", "trial", "step", "best"):
        judge(f"event {kind}", seen.get(kind, "none came"))


def exports():
    for target in json.loads(ask("/v1/exporters?page_size=1000"))["items"]:
        name = target["name"]
        for whole in [name] + [f"{w}+{name}" for w in target["wrappers"]]:
            path = f"/v1/campaigns/{campaign}/export/{whole}?allow_loss=true"
            try:
                ask(path)
                print("not ok", f"export to {whole} needs leave")
            except urllib.error.HTTPError as refusal:
                text = refusal.read().decode()
                good = refusal.code == 422 and "allow_simulated" in text and '"rule":"simulated"' in text
                print("ok" if good else "not ok", f"export to {whole} needs leave")
            try:
                judge(f"export to {whole}", ask(path + "&allow_simulated=true"))
            except urllib.error.HTTPError as refusal:  # a rule of the target, which has nothing to do with this
                judge(f"export to {whole} is refused for itself", refusal.read().decode(), marked=False)


def results():
    for scaling in ("strong", "weak"):
        body = {"campaign": campaign, "devices": [8, 16], "scaling": scaling}
        text = ask("/v1/project", body)
        judge(f"projection, {scaling} scaling", text)
        whole = json.loads(text)
        good = whole["simulated"] and whole["base"]["simulated"] and whole["calibration"]["simulated"] == whole["calibration"]["trials"]
        print("ok" if good else "not ok", f"projection, {scaling} scaling, says so of its base and its calibration")
    # Trials that came after a projection of just their layout are no evidence about it: they are simulated.
    print("ok" if json.loads(text)["earlier"] == [] else "not ok", "no simulated trial counts as the test of a projection")
    judge("comparison of trials", ask("/v1/compare", {"trials": [{"campaign": campaign, "n": 1}, {"campaign": campaign, "n": 2}]}))


def webhooks():
    with open(hooks) as f:
        bodies = [json.loads(line)["body"] for line in f]
    print("ok" if len(bodies) > 10 else "not ok", f"webhooks came ({len(bodies)})")
    kinds = {}
    for body in bodies:
        v = json.loads(body)
        # What a delivery says for itself, too: a receiver may look no further.
        if v["simulated"] is not True:
            body = "{}"
        if kinds.get(v["event"], "{}") != "{}" or v["event"] not in kinds:
            kinds[v["event"]] = body
    for kind, body in sorted(kinds.items()):
        judge(f"webhook {kind}", body)


routes()
shares()
events()
exports()
results()
webhooks()
judge("metrics", ask("/metrics"))
