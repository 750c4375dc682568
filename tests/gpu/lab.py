"""What the steps of tests/gpu/run share: the report, commands with limits, the trainer's jobs."""
import json
import os
import signal
import subprocess
import sys
import time


class Failed(Exception):
    """A step's own verdict; its text goes into the report."""


class NotRun(Exception):
    """Something that this machine or this build lacks; its text says what."""


class Lab:
    """MODE is cuda (the GPU) or shim (kernels simulated on the host: tries these programs out)."""

    def __init__(self, mode, pack, out, build, deadline):
        self.mode, self.pack, self.out = mode, pack, out
        self.work = os.path.join(out, "work")
        self.root = os.path.join(self.work, "root")
        self.build = build or os.path.join(self.work, "build")
        self.source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        self.end, self.step, self.step_end = deadline, "", deadline
        self.torch = None
        os.makedirs(self.work, exist_ok=True)
        self.report_file = open(os.path.join(out, "report.jsonl"), "a", buffering=1)
        self.log_file = open(os.path.join(out, "log.txt"), "ab", buffering=0)

    def report(self, **fields):
        line = json.dumps({"step": self.step, **fields})
        self.report_file.write(line + "\n")
        print(line, flush=True)

    def left(self):
        return max(0.0, min(self.end, self.step_end) - time.monotonic())

    def environment(self):
        env = dict(os.environ)
        if self.mode == "shim":
            standin = os.path.join(self.build, "tests/kncheck/standin")
            env["LD_LIBRARY_PATH"] = ":".join(p for p in [standin, env.get("LD_LIBRARY_PATH")] if p)
        env["PATH"] = f"{self.root}/bin:{env['PATH']}:/usr/local/cuda/bin"
        env["PARTUNE_CUDA"] = self.plugin()
        env["STANDIN_GPUS"] = "1"
        env.setdefault("HWLOC_COMPONENTS", "-linuxio")  # as in make check: no rank reads every PCI device at its start
        return env

    def plugin(self):
        name = "partune-cuda.so" if self.mode == "cuda" else "tests/kncheck/cuda-shim.so"
        return os.path.join(self.build, name)

    def program(self, name):
        return os.path.join(self.build, name)

    def call(self, command, limit=None, text=None, cwd=None, env=None):
        """Exit code (None: it ran out of time and was killed, with all that it started) and output."""
        limit = min(limit or 1e9, self.left())
        if limit <= 0:
            return None, ""
        self.log_file.write(f"\n== {self.step}: {' '.join(command)}\n".encode())
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, cwd=cwd or self.work,
                                 env=env or self.environment(), start_new_session=True)
        try:
            out, _ = child.communicate((text or "").encode(), timeout=limit)
            code = child.returncode
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            code = None
            try:
                out, _ = child.communicate(timeout=5)
            except subprocess.TimeoutExpired as left:  # one that left the group, or that a driver holds, has the pipe open
                out = left.output or b""
        self.log_file.write(out[-200000:])
        return code, out.decode(errors="replace")

    def must(self, command, **options):
        code, out = self.call(command, **options)
        if code != 0:
            why = "time is up" if code is None else f"exit code {code}"
            raise Failed(f"{os.path.basename(command[0])}: {why}: {out.strip()[-400:]}")
        return out

    def has_torch(self):
        """Whether this Python has a PyTorch that computes on the device: asked once, since its import takes seconds."""
        if self.torch is None and self.left() > 0:
            where = "cuda" if self.mode == "cuda" else "cpu"
            code, out = self.call([sys.executable, "-c", f"import torch; torch.zeros(1, device='{where}'); "
                                   "print(torch.__version__, 'CUDA', torch.version.cuda)"])
            self.torch = None if code is None else code == 0
            self.report(check="torch", found=self.torch, says=(out.strip().splitlines() or ["time is up"])[-1][:200])
        return bool(self.torch)

    # ---- the trainer's jobs -------------------------------------------------------------------

    def device(self, where):
        """partune-train's --device: all ranks share the first GPU ("gpu"), or have one of their own ("gpus")."""
        return ["--device", {"gpu": "cuda:0", "gpus": "cuda"}.get(where, "cpu")]

    def job(self, where, ranks, options):
        return ["mpiexec", "-n", str(ranks), self.program("partune-train"), "--data-dir", self.work,
                "--quiet", *self.device(where), *options]

    def losses(self, name, where, ranks, options, limit=60, env=None):
        """Losses by step, or the exit code of a job that failed (None: time is up)."""
        metrics = os.path.join(self.work, name + ".metrics")
        if os.path.exists(metrics):
            os.unlink(metrics)
        code, out = self.call(self.job(where, ranks, [*options, "--metrics", metrics]), limit=limit,
                              env={**self.environment(), **(env or {})})
        if code != 0:
            return code, out
        with open(metrics) as lines:
            return 0, [json.loads(line)["loss"] for line in lines]

    def model(self, name, **changes):
        """A file with the preset NAME, or a new model, with CHANGES."""
        preset = os.path.join(self.source, "plan/presets/models", name + ".json")
        model = json.load(open(preset)) if os.path.exists(preset) else {"name": name}
        model.update(changes)
        path = os.path.join(self.work, name + ".json")
        with open(path, "w") as out:
            json.dump(model, out)
        return path, model


def objects(text):
    """The JSON objects among the lines of TEXT: one may be cut short, and programs warn on the same output."""
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return [value for value in found if isinstance(value, dict)]


def apart(a, b):
    """The largest relative distance of two lists of losses; infinite if their lengths differ."""
    if len(a) != len(b) or not a:
        return float("inf")
    return max(abs(x - y) / max(abs(x), 1e-30) if x == x and y == y else float("inf") for x, y in zip(a, b))
