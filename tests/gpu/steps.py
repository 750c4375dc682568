"""Steps of tests/gpu/run that say whether it is right; bench.py has those that say how fast it is."""
import concurrent.futures
import glob
import json
import lzma
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import time

from lab import Failed, NotRun, apart

TOLERANCE = 1e-4  # fp32 losses of two layouts, tests/mpi/parity.c
LIBRARIES = {"JANSSON": "jansson", "UV": "uv", "CURL": "curl", "SQLITE": "sqlite3", "MHD": "microhttpd", "ZLIB": "z",
             "NETTLE": "nettle", "LAPACK": "openblas", "MPICH": "mpich"}
ARCHS = {"8": "arch=compute_80,code=[sm_80,compute_80]", "9": "arch=compute_90a,code=sm_90a",
         "10": "arch=compute_100,code=sm_100"}


def nvidia_smi(lab, query):
    if not shutil.which("nvidia-smi", path=lab.environment()["PATH"]):
        raise NotRun("no nvidia-smi")
    code, out = lab.call(["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader,nounits", "-i", "0"], limit=20)
    if code != 0:
        raise NotRun("nvidia-smi does not answer: " + out.strip()[-200:])
    return [word.strip() for word in out.strip().split(",")]


def machine(lab):
    facts = {"mode": lab.mode, "date": time.strftime("%Y-%m-%d %H:%M:%S %Z"), "cores": os.cpu_count()}
    commit = os.path.join(lab.pack or "", "commit")
    if os.path.exists(commit):
        facts["commit"] = open(commit).read().strip()
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            facts["cpu"] = line.split(":")[1].strip()
            break
    if lab.mode == "cuda":
        names = ["name", "driver_version", "memory.total", "memory.used", "compute_cap", "clocks.sm", "power.limit",
                 "temperature.gpu", "ecc.mode.current", "mig.mode.current"]
        facts.update(zip((name.replace(".", "_") for name in names), nvidia_smi(lab, ",".join(names))))
    lab.report(**facts)


def unpack(archive, to):
    with lzma.open(archive) as plain, tarfile.open(fileobj=plain) as tar:
        tar.extractall(to)


def build(lab):
    if os.path.exists(lab.program("partune-train")):
        return {"note": "built before"}
    if not lab.pack:
        raise Failed("neither --pack nor --build was given")
    unpack(os.path.join(lab.pack, "root.tar.xz"), lab.root)
    unpack(os.path.join(lab.pack, "partune.tar.xz"), lab.work)
    configure = glob.glob(os.path.join(lab.work, "partune-*", "configure"))[0]
    os.makedirs(lab.build, exist_ok=True)
    nvcc = shutil.which("nvcc", path=lab.environment()["PATH"])
    if not nvcc and lab.mode == "cuda":
        raise NotRun("no nvcc")
    include, lib = os.path.join(lab.root, "include"), os.path.join(lab.root, "lib")
    settings = [f"CPPFLAGS=-I{include}", f"LDFLAGS=-L{lib} -Wl,--disable-new-dtags,-rpath,{lib}"]
    for name, library in LIBRARIES.items():
        settings += [f"{name}_CFLAGS=-I{include}", f"{name}_LIBS=-L{lib} -l{library}"]
    if nvcc:
        settings.append("--with-cuda=" + os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
    lab.must([configure, *settings], cwd=lab.build)
    targets = ["all", "tests/kncheck/kncheck"]
    if lab.mode == "cuda":
        targets += ["tests/gpu/bench_device"]
        try:
            capability = nvidia_smi(lab, "compute_cap")[0].split(".")[0]
            targets += [f"CU_ARCHS=-gencode={ARCHS.get(capability, ARCHS['8'])}"]
        except NotRun as why:
            lab.report(check="architecture", detail=f"built for all: {why}")
    else:
        targets += ["tests/gpu/bench_device-host", "tests/kncheck/cuda-shim.so", "tests/kncheck/standin/libcuda.so.1"]
    lab.must(["make", f"-j{os.cpu_count()}", *targets], cwd=lab.build)
    return {"nvcc": subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout.split()[-1] if nvcc else None}


def kncheck_command(lab, options):
    return [lab.program("tests/kncheck/kncheck"), "--plugin=" + lab.plugin(), *options]


def tap(out):
    good, bad = re.findall(r"^ok \d+ - (.*)$", out, re.M), re.findall(r"^not ok \d+ - (.*)$", out, re.M)
    return {"ok": len(good), "not_ok": len(bad), "failed": bad[:40]}


def the_others(lab, command, out):
    """An error of the device ends a program, a barrier that is not met stops it. What kncheck would have printed of the
    operations after that one."""
    names = lab.must([*command, "--list"]).split()
    names = names[len(re.findall(r"^(?:not )?ok \d", out, re.M)):]
    if not names:
        return ""
    lab.report(check="kncheck", ended_in=names[0], detail=out.strip()[-300:])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        outs = list(pool.map(lambda name: lab.call([*command, "--op=" + name], limit=20), names[1:]))
    for name, (code, _) in zip(names[1:], outs):
        if code not in (0, 1):
            lab.report(check="kncheck", ended_in=name, code=code)
    return "\n".join(["", *(text for _, text in outs)])


def kncheck(lab):
    """Every kernel, on fresh random inputs with poisoned outputs: off alignment, then on it."""
    small = ["--most=4100"] if lab.mode == "shim" else []
    worst = 0
    for options in [[], ["--aligned"]]:
        seed = random.SystemRandom().randrange(1 << 62)
        command = kncheck_command(lab, [f"--seed={seed}", *options, *small])
        code, out = lab.call(command, limit=lab.left() / (1 if options else 2))
        if lab.left() > 1 and not re.search(r"^1\.\.", out, re.M):
            out += the_others(lab, command, out)
        result = tap(out)
        lab.report(check="kncheck", options=options, seed=seed, code=code, **result)
        worst |= code != 0 or result["not_ok"] > 0 or result["ok"] == 0
    if worst:
        raise Failed("kncheck: see log.txt")


def sanitizer(lab):
    """compute-sanitizer over the small cases of every kernel."""
    tool = shutil.which("compute-sanitizer", path=lab.environment()["PATH"])
    if lab.mode == "shim" or not tool:
        raise NotRun("compute-sanitizer needs a GPU" if tool else "no compute-sanitizer")
    bad = []
    for name in ["memcheck", "racecheck"]:
        half = lab.left() if name == "racecheck" else lab.left() / 2
        code, out = lab.call([tool, "--tool", name, "--error-exitcode", "9",
                              *kncheck_command(lab, ["--aligned", "--most=4100"])], limit=half)
        found = re.findall(r"(ERROR SUMMARY|RACECHECK SUMMARY): (.*)", out)
        lab.report(check=name, code=code, summary=found[-1][1] if found else None, **tap(out))
        if code != 0:
            bad.append(f"{name}: " + ("time is up" if code is None else f"exit code {code}"))
    if bad:
        raise Failed("; ".join(bad))


# ---- parity ---------------------------------------------------------------------------------------------------------

SIZES = {"layers": 4, "hidden": 64, "heads": 8, "kv_heads": 8, "vocab": 128, "seq": 32}
BATCH = 16
MODELS = {"dense": {**SIZES, "ffn": 96},
          "experts": {**SIZES, "moe": {"experts": 8, "top_k": 2, "expert_ffn": 32}}}


def draw(rng, ranks, experts):
    """A layout as options; the trainer says whether it is legal."""
    def part(of):
        return rng.choice([n for n in (1, 2, 4, 8) if of % n == 0])

    tp = part(ranks)
    pp = rng.choice([n for n in (1, 2, 4) if ranks // tp % n == 0])
    cp = rng.choice([n for n in (1, 1, 2) if ranks // tp // pp % n == 0])
    dp = ranks // tp // pp // cp
    chosen = {"tp": tp, "pp": pp, "cp": cp, "micro-batch": part(BATCH // dp), "zero": rng.choice([0, 1, 2, 3]),
              "sp": rng.choice([0, 1]) if tp > 1 else 0, "recompute": rng.choice(["none", "selective", "full"])}
    if experts:
        chosen["ep"] = part(ranks // pp)
    if pp > 1:
        chosen["schedule"] = rng.choice(["gpipe", "1f1b", "zero-bubble"])
    for key in ["grad-reduce", "param-gather", "p2p", "moe-a2a"]:
        if rng.random() < 0.3:
            chosen["overlap-" + key] = 1
    return [word for key, value in chosen.items() for word in ("--" + key, str(value))]


def parity(lab):
    """Drawn layouts of ranks that share the device, against one rank on the CPU."""
    ranks, count = (8, 40) if lab.mode == "cuda" else (4, 3)
    seed = random.SystemRandom().randrange(1 << 31)
    rng = random.Random(seed)
    common = ["--steps", "4", "-b", str(BATCH), "--lr", "0.01", "--precision", "fp32"]
    expected, files = {}, {}
    for name, sizes in MODELS.items():
        files[name], _ = lab.model(name, **sizes)
        code, expected[name] = lab.losses(name, "cpu", 1, ["--model", files[name], *common])
        if code != 0:
            raise Failed(f"the CPU's run of {name}: {code}: {expected[name][-300:]}")
    done, wrong, worst, tried = 0, 0, 0.0, set()
    while done < count and lab.left() > 1:
        name = rng.choice(sorted(MODELS))
        layout = draw(rng, ranks, name == "experts")
        if (name, *layout) in tried:
            continue
        tried.add((name, *layout))
        code, losses = lab.losses("drawn", "gpu", ranks, ["--model", files[name], *common, *layout], limit=60)
        if code == 65:
            continue  # illegal: drawn again
        if code is None and lab.left() <= 0:
            break
        off = apart(expected[name], losses) if code == 0 else float("inf")
        done, wrong, worst = done + 1, wrong + (not off <= TOLERANCE), max(worst, off)
        if not off <= TOLERANCE:
            lab.report(check="parity", model=name, layout=" ".join(layout), code=code,
                       off=off if off < 1e300 else None, detail=losses if code == 0 else losses[-300:])
    lab.report(check="parity", seed=seed, ranks=ranks, layouts=done, wanted=count, wrong=wrong,
               worst=worst if worst < 1e300 else None, tolerance=TOLERANCE, met=not wrong and done == count)
    if wrong or not done:
        raise Failed(f"{wrong} of {done} layouts differ, {count} were wanted")
    return None if done == count else {"note": f"there was time for {done} of {count} layouts"}


LINKED = {"1f1b": ("dense", "--pp 2 --overlap-p2p 1"), "interleaved": ("dense", "--pp 2 --vp 2 --schedule interleaved"),
          "zero-bubble": ("dense", "--pp 2 --schedule zero-bubble --overlap-p2p 1"), "cp": ("dense", "--cp 2"),
          "ep": ("experts", "--ep 2 --overlap-moe-a2a 1"), "tp_overlap": ("dense", "--tp 2 --sp 1 --tp-overlap 1")}


def links(lab):
    """Messages between two GPUs by NCCL, against the same layouts by MPI."""
    if lab.mode == "shim":
        raise NotRun("NCCL needs GPUs; tests/mpi/links.sh has a stand-in for it")
    code, out = lab.call(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], limit=20)
    if code != 0 or len(out.split()) < 2:
        raise NotRun("the machine has no two GPUs")
    differ = []
    for name, (model, layout) in LINKED.items():
        path, _ = lab.model(model, **MODELS[model])
        common = ["--model", path, "--steps", "4", "-b", str(BATCH), "--lr", "0.01", "--precision", "fp32"]
        events = os.path.join(lab.work, "links.events")
        if os.path.exists(events):
            os.unlink(events)
        code, linked = lab.losses("links", "gpus", 2, [*common, *layout.split(), "--events", events])
        if code == 0 and ", NCCL " not in open(events).read():
            raise NotRun("no NCCL (libnccl.so.2)")
        by_mpi, plain = lab.losses("mpi", "gpus", 2, [*common, *layout.split()], env={"PARTUNE_NCCL": "off"})
        off = apart(plain, linked) if code == 0 == by_mpi else None
        lab.report(check="links", layout=name, codes=[code, by_mpi], off=off, tolerance=TOLERANCE)
        if off is None or not off <= TOLERANCE:
            differ.append(name)
    if differ:
        raise Failed("differ or fail: " + ", ".join(differ))


def resume(lab):
    """CPU, then GPU, then CPU, each in another layout, against one run on the CPU."""
    path, _ = lab.model("dense", **MODELS["dense"])
    common = ["--model", path, "-b", "16", "--lr", "0.01", "--precision", "fp32", "--lr-decay-steps", "9", "--lr-warmup", "2"]
    folder = os.path.join(lab.work, "checkpoint")
    shutil.rmtree(folder, ignore_errors=True)
    code, whole = lab.losses("whole", "cpu", 1, [*common, "--steps", "9"])
    if code != 0:
        raise Failed(f"the uninterrupted run: {code}: {whole[-300:]}")
    parts = []
    for number, (where, layout) in enumerate([("cpu", ["--tp", "2"]), ("gpu", ["--pp", "2"]), ("cpu", ["--zero", "1"])]):
        code, losses = lab.losses(f"part{number}", where, 2, [*common, "--steps", str(3 * number + 3), *layout,
                                                            "--checkpoint", folder, "--resume"])
        if code != 0:
            raise Failed(f"part {number + 1} on the {where}: {code}: {losses[-300:]}")
        parts += losses
    off = apart(whole, parts)
    lab.report(check="resume", parts="cpu tp 2, gpu pp 2, cpu zero 1", off=off, tolerance=TOLERANCE)
    if not off <= TOLERANCE:
        raise Failed(f"losses differ by {off}")


def spans(path):
    """Milliseconds by phase of a timeline of one rank; where it ends; and the longest gap or overlap between its bars."""
    with open(path) as trace:
        bars = [event for event in json.load(trace)["traceEvents"] if event["ph"] == "X"]
    by_phase, end, gap = {}, 0.0, 0.0
    for bar in bars:
        by_phase[bar["name"]] = by_phase.get(bar["name"], 0.0) + bar["dur"] / 1e3
        gap = max(gap, abs(bar["ts"] / 1e3 - end))
        end = (bar["ts"] + bar["dur"]) / 1e3
    return by_phase, end, gap


def phases(lab):
    """Phases of a step on the GPU add up, in the event and in the timeline, and the passes have most of it: with 8192 tokens they
    do 49152 operations a parameter, which takes several times as long as the optimizer's few dozen bytes on any GPU."""
    sizes, batch = {"hidden": 1024, "ffn": 4096, "layers": 8, "seq": 512}, 16
    if lab.mode == "shim":
        sizes, batch = {"layers": 2}, 2
    path, _ = lab.model("phases", **{**MODELS["dense"], **sizes})
    events, timeline = os.path.join(lab.work, "phases.events"), os.path.join(lab.work, "phases.timeline")
    for old in (events, timeline):
        if os.path.exists(old):
            os.unlink(old)
    lab.must(lab.job("gpu", 1, ["--model", path, "-b", str(batch), "--precision", "fp32", "--trial", "--warmup-steps", "2",
                                "--min-steps", "3", "--max-steps", "3", "--events", events, "--timeline", timeline]))
    with open(events) as lines:
        steps = [event for event in map(json.loads, lines) if event["event"] == "step" and not event["warmup"]]
    by_phase, end, gap = spans(timeline)
    first = steps[0]  # the timeline's
    worst = {"sum": max(abs(sum(step["phases"].values()) / step["ms"] - 1) for step in steps),
             "timeline": max(abs(end / first["ms"] - 1), gap / first["ms"],
                             *(abs(by_phase.get(name, 0) - ms) / first["ms"] for name, ms in first["phases"].items()))}
    least = min((step["phases"]["forward"] + step["phases"]["backward"]) / step["ms"] for step in steps)
    negative = min(min(step["phases"].values()) for step in steps) < -1e-3
    lab.report(check="phases", ms=[step["ms"] for step in steps], phases=first["phases"], off=worst, passes_at_least=least)
    if max(worst.values()) > 0.01 or negative:
        raise Failed(f"phases do not add up to the step: off by {worst}")
    if least < 0.5:
        raise Failed(f"the forward and backward pass have {least:.2f} of a step")


# ---- calibration ----------------------------------------------------------------------------------------------------

MOST, HALF = 1.02, 0.5  # of a peak: more than the first cannot be, less than the second is worth a look


def known_device(lab, profile):
    """The bundled profile's device that the calibration names as its source, or None."""
    for text in profile.get("source", []):
        name = text.rpartition(" profile ")[2]
        with open(os.path.join(lab.source, "plan/presets/clusters", name + ".json")) as preset:
            return json.load(preset)["device"]


def tuned_model(lab):
    sizes = {"layers": 2} if lab.mode == "shim" else {"layers": 4, "seq": 4096}
    return lab.model("nano-llama" if lab.mode == "shim" else "llama-3.2-1b", **sizes)[0]


def calibrate(lab):
    """The profile of this GPU, and its rates next to the peaks that its data sheet has."""
    path, model = os.path.join(lab.work, "calibrated/profiles/local.json"), tuned_model(lab)
    out = lab.must(["mpiexec", "-n", "1", lab.program("partune-train"), "--calibrate", path, "--device", "cuda", "--model", model])
    with open(path) as text:
        profile = json.load(text)
    lab.report(check="calibration", profile=profile, says=out.strip().splitlines())
    products = profile["stamp"].get("algorithms", {}).get("products", [])
    gains = sorted(product["tflops"] / product["heuristic_tflops"] for product in products)
    lab.report(check="algorithms", products=len(products), others=sum(product["number"] > 0 for product in products),
               gain_median=gains[len(gains) // 2] if gains else None, gain_most=gains[-1] if gains else None)
    device = profile["device"]
    lab.report(check="watts", idle=device.get("idle_watts"), busy=device.get("busy_watts"))
    lab.report(check="driver", memory_gib=device["memory_gib"], **{key: device.get(key) for key in ("context_gib", "library_gib", "nccl_gib")})
    known, measured = known_device(lab, profile), profile["stamp"]["measured"]
    rates = [("bf16 product, TFLOP/s", measured["gemm_bf16_tflops"], known and known["peak_tflops"]["bf16"]),
             ("fp32 product, TFLOP/s", measured["gemm_fp32_tflops"], known and known["peak_tflops"]["fp32"]),
             ("memory, GB/s", max(measured["add_gbs"], measured["adamw_gbs"]), known and known["memory_gbs"])]
    wrong = []
    for what, rate, peak in rates:
        share = rate / peak if peak else None
        lab.report(check="calibrated", what=what, rate=rate, peak=peak, share=share,
                   met=None if share is None else HALF <= share <= MOST,
                   **({"warning": "below half of the peak"} if share is not None and share < HALF else {}))
        if not rate > 0 or share is not None and share > MOST:
            wrong.append(f"{what}: {rate:.6g} of {peak}")
    if wrong:
        raise Failed("impossible rates: " + "; ".join(wrong))
    return None if known else {"note": "not compared: no bundled profile has " + profile["device"]["name"]}


def one_trial(lab, name, data, *options):
    """Events of a trial of one rank with the profile in DATA and OPTIONS, by name."""
    events = os.path.join(lab.work, name + ".events")
    if os.path.exists(events):
        os.unlink(events)
    job = lab.job("gpu", 1, ["--model", tuned_model(lab), "-b", "4", "--micro-batch", "1", "--precision", "bf16", "--trial",
                             "--warmup-steps", "3", "--min-steps", "5", "--max-steps", "20", "--events", events, *options])
    job[job.index("--data-dir") + 1] = data
    lab.must(job)
    with open(events) as lines:
        return {event["event"]: event for event in map(json.loads, lines)}


def tuned(lab):
    """A trial with the calibration's algorithms next to the same by the heuristic's, with graphs, and its memory by class."""
    data = os.path.join(lab.work, "calibrated")
    if not os.path.exists(os.path.join(data, "profiles/local.json")):
        raise NotRun("no calibration")
    rates = {"heuristic": [], "measured": [], "graphs": []}
    for _ in range(3):
        plain, ours = one_trial(lab, "plain", os.path.join(lab.work, "nothing")), one_trial(lab, "tuned", data)
        rates["heuristic"].append(plain["summary"]["tokens_per_s"])
        rates["measured"].append(ours["summary"]["tokens_per_s"])
        graphs = one_trial(lab, "graphs", data, "--cuda-graphs", "modules")
        rates["graphs"].append(graphs["summary"]["tokens_per_s"])
    medians = {key: sorted(values)[1] for key, values in rates.items()}
    lab.report(check="tuned", build=ours["hello"]["build"], tokens_per_s=rates, ratio=medians["measured"] / medians["heuristic"],
               graphs_ratio=medians["graphs"] / medians["measured"])
    common = ["--model", tuned_model(lab), "-b", "4", "--micro-batch", "1", "--precision", "bf16", "--steps", "5", "--cluster",
              os.path.join(data, "profiles/local.json")]
    plain, same = lab.losses("plain", "gpu", 1, common), lab.losses("graphs", "gpu", 1, [*common, "--cuda-graphs", "modules"])
    lab.report(check="graphs", plain=plain, graphs=same, met=plain[0] == 0 and plain == same)
    memory = ours["summary"]["memory"]
    lab.report(check="memory by class", planned=memory["planned"], measured=memory["measured"])
    if "warning" in ours and ours["warning"]["what"] == "other-algorithms" or "measured products" not in ours["hello"]["build"]:
        raise Failed("the trial does not use the calibration's algorithms")
    if plain[0] != 0 or plain != same:
        raise Failed("losses with graphs are not those without")


# ---- the daemon -----------------------------------------------------------------------------------------------------

class Daemon:
    """A daemon with data of its own; as a context manager it runs."""

    def __init__(self, lab, name):
        self.lab, self.data = lab, f"{lab.work}/{name}"
        self.server, self.options = f"unix:{self.data}.socket", []
        shutil.rmtree(self.data, ignore_errors=True)
        os.makedirs(self.data + "/profiles")

    def __enter__(self):
        with open(self.data + ".log", "wb") as log:
            command = [self.lab.program("partuned"), "--data", self.data, "--listen", self.server, *self.options]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.lab.environment(), start_new_session=True)
        for _ in range(100):
            if self.lab.call([self.lab.program("partune"), "get", "/readyz", "--server", self.server], limit=5)[0] == 0:
                break
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def command(self, words):
        return [self.lab.program("partune"), *words, "--server", self.server, "--data", self.data]

    def client(self, *words):
        return self.lab.must(self.command(words))

    def submit(self, plan):
        """The id of a campaign that has ended, and its trials."""
        path = self.data + ".json"
        with open(path, "w") as out:
            json.dump(plan, out)
        number = str(json.loads(self.client("submit", path, "--json"))["id"])
        self.client("wait", number)
        return number, json.loads(self.client("trials", number, "--json"))["items"]

    def verify(self, number, trials, pairs, steps):
        """Report the campaign with its winner and baseline measured again."""
        states = [trial["state"] for trial in trials]
        words = ["verify", number, "--wait", "--pairs", str(pairs), "--steps", str(steps)]
        code, out = self.lab.call(self.command(words))
        shown = json.loads(self.client("show", number, "--json"))
        self.lab.report(check="campaign", states={state: states.count(state) for state in set(states)}, verify_code=code,
                        met=code == 0, verification=shown.get("verify") or out.strip()[-300:])
        if "ok" not in states or code not in (0, 6):
            raise Failed(f"states {states}, verify ended with {code}")


# An H200's data sheet, for the prior and MFU; its memory and its kind are what a campaign on GPUs needs.
GPU = {"name": "gpu", "nodes": 1, "devices_per_node": 1, "oversubscribe": True, "links": [{"span": 8, "gbs": 25, "latency_us": 20}],
       "device": {"name": "H200", "memory_gib": 130, "memory_gbs": 4800, "peak_tflops": {"bf16": 989, "fp32": 67}}}


def campaign(lab):
    """A campaign on GPUs: winner over baseline, verified. Two ranks share the device."""
    daemon, small = Daemon(lab, "data"), lab.mode == "shim"
    sizes = {} if small else {"hidden": 512, "seq": 512, "ffn": 2048}
    plan = {"name": "gpu", "model": {"name": "gpu", **MODELS["dense"], **sizes}, "cluster": GPU,
            "workload": {"global_batch": 16, "precision": "fp32" if small else "bf16"},
            "space": {"world": [1] if small else [1, 2], "micro_batch": [1, 4, 16], "threads": [1]}, "baseline": "naive",
            "budget": {"trials": 3 if small else 10}, "trial": {"warmup_steps": 1, "min_steps": 2, "max_steps": 3 if small else 20,
                                                               "timeout_s": 60}}
    with daemon:
        number, trials = daemon.submit(plan)
        hello = json.loads(daemon.client("log", number, "1", "--stream", "events").splitlines()[0])
        lab.report(check="device", device=hello["device"], met=hello["device"] != "cpu",
                   tokens_per_joule=[trial["tokens_per_joule"] for trial in trials])
        if hello["device"] == "cpu":
            raise Failed("the campaign's trials computed on the CPU")
        daemon.verify(number, trials, *((2, 5) if small else (6, 20)))


def pytorch(lab):
    """The script of docs/howto/tune-your-own-trainer.md in trials under this machine's PyTorch, one rank on the first device."""
    python = sys.executable
    if not lab.has_torch():
        raise NotRun("no PyTorch")
    daemon, small = Daemon(lab, "pytorch"), lab.mode == "shim"
    with open(daemon.data + ".conf", "w") as out:
        out.write("[trainer \"pytorch\"]\nparser = jsonl\nlog = stderr\n"
                  f"command = '{python}' -m torch.distributed.run -r 2 -t 2 --log_dir {{folder}} --rdzv_backend c10d "
                  f"--rdzv_endpoint localhost:0 --nproc_per_node {{world}} '{lab.source}/docs/examples/pytorch/train.py'\n"
                  f"env = PYTHONPATH={lab.source}/python\n")
    daemon.options = ["--config", daemon.data + ".conf"]
    sizes = {"layers": 2, "hidden": 64, "ffn": 128} if small else {"layers": 8, "hidden": 1024, "ffn": 4096}
    keys = ["tp", "pp", "cp"]
    plan = {"name": "pytorch", "trainer": "pytorch", "workload": {"global_batch": 16, "precision": "fp32"},
            "model": {"name": "small-gpt", "heads": 4, "vocab": 512, "seq": 64, "mlp": "gelu", "norm": "layernorm",
                      "positions": "learned", **sizes},
            "space": {"world": [1], **{key: [1] for key in keys}, "zero": [0], "overlap_param_gather": [0],
                      "overlap_grad_reduce": [0], "micro_batch": [1, 4, 16], "recompute": ["none"] if small else ["none", "full"]},
            "baseline": {"world": 1, "micro_batch": 1}, "budget": {"trials": 3 if small else 4},
            "trial": {"warmup_steps": 2, "min_steps": 4, "max_steps": 6 if small else 30, "timeout_s": 60}}
    with daemon:
        number, trials = daemon.submit(plan)
        hello = daemon.client("log", number, "1", "--stream", "events").splitlines()[0]
        shown = ("text", "state", "tokens_per_s", "memory", "tokens_per_joule")
        lab.report(check="pytorch", build=json.loads(hello).get("build"),
                   trials=[{key: trial.get(key) for key in shown} for trial in trials])
        daemon.verify(number, trials, 2, 5 if small else 20)
