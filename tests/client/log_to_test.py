"""Event files read by a reader of our own, and a real HTTP server that speaks MLflow's REST as far as it is used."""
import http.server
import json
import os
import struct
import subprocess
import sys
import threading
import urllib.parse

from tap import finish, ok

partune, campaign = sys.argv[1:]


def run(*words):
    done = subprocess.run([partune, *words], capture_output=True, text=True, env=dict(os.environ, MLFLOW_TRACKING_TOKEN="s3cret"))
    return done.returncode, done.stdout, done.stderr


def resource(path):
    return json.loads(run("get", path)[1])


def steps_of(trial):
    path, items, token = f"/v1/campaigns/{campaign}/trials/{trial}/steps?page_size=1000", [], ""
    while True:
        page = resource(path + token)
        items += page["items"]
        if not page["next_page_token"]:
            return items
        token = "&page_token=" + urllib.parse.quote(page["next_page_token"], safe="")


# ---- TensorBoard: TFRecord and Protocol Buffers, from their descriptions ----
TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    with open(path, "rb") as file:
        while head := file.read(12):
            size, check = struct.unpack("<QI", head)
            assert check == masked(head[:8]), "CRC of the length"
            data = file.read(size)
            assert len(data) == size and struct.unpack("<I", file.read(4))[0] == masked(data), "CRC of the data"
            yield data


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    at, found = 0, {}
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif wire == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


ok("CRC-32C has its check value", crc32c(b"123456789") == 0xE3069283)
code, out, err = run("log-to", "tensorboard", "runs", campaign)
ok("trials are logged for TensorBoard", code == 0 and "logged" in out and "(simulated)" in out, (code, out, err))
trials = [json.loads(line) for line in run("results", campaign, "--format", "jsonl")[1].splitlines()]
for trial in trials[:3]:
    folder = f"runs/{campaign}/trial-{trial['n']:03d}"
    files = os.listdir(folder)
    events = [fields(data) for data in records(os.path.join(folder, files[0]))]
    scalars, hparams, status = {}, {}, None
    for event in events[1:]:
        value = fields(fields(event[5][0])[1][0])
        tag = value[1][0].decode()
        if 2 in value:
            scalars.setdefault(tag, []).append((event.get(2, [0])[0], event[1][0], value[2][0]))
            continue
        plugin = fields(fields(value[9][0])[1][0])
        assert plugin[1][0] == b"hparams"
        content = fields(plugin[2][0])
        for entry in fields(content[3][0]).get(1, []) if 3 in content else []:
            pair = fields(entry)
            setting = fields(pair[2][0])
            hparams[pair[1][0].decode()] = setting[2][0] if 2 in setting else setting[3][0].decode()
        if 4 in content:
            status = fields(content[4][0])[1][0]
    steps = steps_of(trial["n"])
    name = f"trial {trial['n']}: "
    ok(name + "one file, which says its version", len(files) == 1 and events[0][3] == [b"brain.Event:2"], files)
    ok(name + "each step has its time", [(step, round(value, 2)) for step, _, value in scalars["step_ms"]] ==
       [(step["n"], round(struct.unpack("f", struct.pack("f", step["ms"]))[0], 2)) for step in steps], scalars["step_ms"][:4])
    walls = [wall for _, wall, _ in scalars["step_ms"]]
    ok(name + "in order", walls == sorted(walls) and walls[0] > 1.5e9)
    ok(name + "the result", abs(scalars["trial/tokens_per_s"][0][2] / trial["tokens_per_s"] - 1) < 1e-6 and status == 1, scalars)
    ok(name + "the layout", all(hparams[key] == value for key, value in trial["layout"].items()), hparams)
before = {path: open(path, "rb").read() for path in (os.path.join(at, f) for at, _, found in os.walk("runs") for f in found)}
run("log-to", "tensorboard", "runs", campaign)
after = {path: open(path, "rb").read() for path in (os.path.join(at, f) for at, _, found in os.walk("runs") for f in found)}
ok("logging again changes nothing", before == after and len(after) == len(trials))
open("file", "w").close()
code, out, err = run("log-to", "tensorboard", "file/x", campaign)
ok("a directory that cannot be made is named", code == 6 and "file" in err, (code, err))

# ---- MLflow ------------------------------------------------------------------
experiments, runs, seen = {}, {}, []


class Server(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass

    def do_GET(self):
        seen.append(self.headers.get("Authorization"))
        parts = urllib.parse.urlsplit(self.path)
        assert parts.path == "/api/2.0/mlflow/experiments/get-by-name", parts.path
        name = urllib.parse.parse_qs(parts.query)["experiment_name"][0]
        if name in experiments:
            return self.answer(200, {"experiment": {"experiment_id": experiments[name], "name": name}})
        self.answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        seen.append(self.headers.get("Authorization"))
        verb = self.path.removeprefix("/api/2.0/mlflow/")
        if verb == "experiments/create":
            experiments[body["name"]] = str(len(experiments) + 1)
            return self.answer(200, {"experiment_id": experiments[body["name"]]})
        if verb == "runs/search":
            assert body["experiment_ids"] == ["1"]
            key = body["filter"].removeprefix("tags.`partune.trial` = '").removesuffix("'")
            return self.answer(200, {"runs": [{}] for r in runs.values() if r["tags"]["partune.trial"] == key} or {})
        if verb == "runs/create":
            run_id = f"r{len(runs)}"
            runs[run_id] = {**body, "tags": {t["key"]: t["value"] for t in body["tags"]}, "metrics": [], "params": {}, "batches": []}
            return self.answer(200, {"run": {"info": {"run_id": run_id}}})
        target = runs[body["run_id"]]
        if verb == "runs/log-batch":
            assert len(body["metrics"]) <= 1000 and len(body.get("params", [])) <= 100
            for metric in body["metrics"]:
                assert isinstance(metric["value"], (int, float)) and metric["timestamp"] > 1.5e12
            target["metrics"] += body["metrics"]
            target["params"].update({p["key"]: p["value"] for p in body.get("params", [])})
            return self.answer(200, {})
        assert verb == "runs/update", verb
        target.update(status=body["status"], end_time=body["end_time"])
        self.answer(200, {})


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
code, out, err = run("log-to", "mlflow", url, campaign)
ok("trials are logged to MLflow", code == 0 and len(runs) == len(trials), (code, out, err))
ok("in an experiment of the campaign's name", list(experiments) == ["partune/to be logged"], experiments)
ok("with MLflow's token, not the daemon's", set(seen) == {"Bearer s3cret"}, set(seen))
for trial, logged in zip(trials, runs.values()):
    last = {metric["key"]: metric["value"] for metric in logged["metrics"]}
    if trial["n"] < 4:
        ok(f"trial {trial['n']}: layout, result and end", logged["params"]["tp"] == str(trial["layout"]["tp"]) and
           last["tokens_per_s"] == trial["tokens_per_s"] and logged["status"] == "FINISHED" and
           logged["end_time"] > logged["start_time"] and logged["tags"]["partune.simulated"] == "true", logged)
steps = steps_of(1)
first = next(iter(runs.values()))
ok("every step of a long trial, in batches", len([m for m in first["metrics"] if m["key"] == "step_ms"]) == len(steps) > 1000, len(steps))
code, out, err = run("log-to", "mlflow", url, campaign)
ok("a second time logs nothing", code == 0 and len(runs) == len(trials) and "logged 0 of" in out, out)
code, out, err = run("--json", "log-to", "mlflow", url, "last")
ok("--json says so", json.loads(out)["logged"] == 0, out)
code, out, err = run("log-to", "mlflow", "http://127.0.0.1:9", campaign)
ok("no server is exit 3", code == 3 and "no MLflow server" in err, (code, err))
code, out, err = run("log-to", "mlflow", os.environ["PARTUNE_SERVER"], campaign)
ok("another server is refused", code != 0 and err, (code, err))
ok("an unknown tool is wrong usage", run("log-to", "wandb", "x", campaign)[0] == 2)
finish()
