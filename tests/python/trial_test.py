"""A trial around a loop without torch: what it writes, and how it ends."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

SRC = os.environ["PT_SRC"]
CONFIG = {
    "model": {"name": "tiny", "layers": 2},
    "cluster": {"device": {"memory_gib": 2}},
    "workload": {"global_batch": 8, "seq": 16},
    "layout": {"world": 1, "dp": 1, "micro_batch": 2},
    "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 6, "ci": 1e-9},
}
# Each step is longer than the one before: steps alike to the microsecond would be a result at once.
LOOP = """
    import os, signal, sys, time
    import partune
    plain = {"micro_batch": 4, "zero": 1}
    with partune.trial(layout=plain, workload={"global_batch": 4, "seq": 2}) as trial:
        n = 0
        while n < 50:
            n += 1
            with trial.step(tokens=128) as step:
                time.sleep(0.002 + 0.0005 * n)
                step.loss = 5.0 - n / 10
                %s
            if trial.done:
                break
        print("steps", n, trial.layout.micro_batch, trial.micro_batches, trial.layout.zero)
"""

# A device on which each step takes 12.5 ms, in place of torch.
CUDA = """
import atexit, sys, types

class Event:
    made = synchronized = 0
    def __init__(self, enable_timing):
        assert enable_timing
    def record(self):
        Event.made += 1
        self.at = 12.5 * (Event.made // 2)
    def synchronize(self):
        Event.synchronized += 1
    def elapsed_time(self, end):
        return end.at - self.at

class OutOfMemoryError(RuntimeError):
    pass

torch = types.ModuleType("torch")
torch.__version__ = "2.9"
torch.OutOfMemoryError = OutOfMemoryError
torch.cuda = types.SimpleNamespace(
    is_available=lambda: True,
    is_initialized=lambda: True,
    max_memory_allocated=lambda: 123456,
    current_device=lambda: 1,
    Event=Event,
)
sys.modules["torch"] = torch
atexit.register(lambda: print("synchronized", Event.synchronized))
"""

# NVML and the driver of two GPUs, of which the script has the second, which has used `joules`.
NVML = """
import ctypes, types
joules, mig, healthy = 0, 0, True
def device_get(device, number):
    device._obj.value = number + 40
    return 0
def bus_id(text, size, device):
    text.value = b"00000000:%02d:00.0" % device.value
    return 0
def handle_of(bus, handle):
    handle._obj.value = int(bus.value[9:11])
    return 0
def mig_mode(handle, current, pending):
    current._obj.value = mig
    return 0
def energy(handle, total):
    assert handle.value == 41, handle
    total._obj.value = int(1000 * joules)
    return 0 if healthy else 15
LIBRARIES = {
    "libcuda.so.1": types.SimpleNamespace(
        cuInit=lambda flags: 0, cuDeviceGet=device_get, cuDeviceGetPCIBusId=bus_id
    ),
    "libnvidia-ml.so.1": types.SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetHandleByPciBusId_v2=handle_of,
        nvmlDeviceGetMigMode=mig_mode,
        nvmlDeviceGetTotalEnergyConsumption=energy,
    ),
}
ctypes.CDLL = LIBRARIES.__getitem__
"""

# 100 J between two steps, which belong to none, and n J in step n.
COUNTED = LOOP.replace("n += 1", "n += 1; use(100 * n)") % "use(101 * n)"
USE_GPU = """
def use(total):
    global joules
    joules = total
"""
USE_HOST = """
import os
def use(total, top=250):
    path = os.environ["PARTUNE_POWERCAP"] + "/intel-rapl:%d/energy_uj"
    for zone in range(2):
        with open(path % zone, "w") as file:
            file.write("%d\\n" % (1000000 * total % (1000000 * top)))
use(0)
"""


class Trial(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=os.environ["PT_BUILD"])
        self.config = os.path.join(self.folder.name, "config.json")
        self.path = os.path.join(self.folder.name, "events")

    def tearDown(self):
        self.folder.cleanup()

    def start(self, script, config=CONFIG, **environment):
        env = {k: v for k, v in os.environ.items() if not k.startswith("PARTUNE_")}
        env.update(PYTHONPATH=SRC + "/python", PYTHONDONTWRITEBYTECODE="1", **environment)
        if config:
            with open(self.config, "w", encoding="utf-8") as file:
                json.dump(config, file)
            env.update(PARTUNE_TRIAL_CONFIG=self.config)
            env.setdefault("PARTUNE_TRIAL_EVENTS", self.path)
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run_script(self, script, config=CONFIG, **environment):
        """Exit code, stdout and stderr."""
        process = self.start(script, config, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def events(self):
        with open(self.path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def last(self, code, script, config=CONFIG):
        """The last event of SCRIPT, which must end with CODE."""
        found, out, err = self.run_script(script, config)
        self.assertEqual(found, code, err)
        return self.events()[-1]

    def test_a_trial_says_hello_memory_steps_and_summary(self):
        code, out, err = self.run_script(LOOP % "")
        self.assertEqual(code, 0, err)
        names = [event["event"] for event in self.events()]
        self.assertEqual(names, ["hello", "memory"] + ["step"] * 7 + ["summary"])
        self.assertEqual(self.events()[1]["budget"], 2 << 30)
        self.assertTrue(self.events()[0]["ends_itself"])

    def test_the_daemon_s_layout_replaces_the_script_s(self):
        out = self.run_script(LOOP % "")[1]
        self.assertEqual(out, "steps 7 2 4 1\n")

    def test_events_have_the_keys_of_the_bundled_trainer(self):
        self.run_script(LOOP % "")
        want = {}
        with open(SRC + "/tests/data/protocol/ok.jsonl", encoding="utf-8") as file:
            for line in file:
                event = json.loads(line)
                want.setdefault(event["event"], set()).update(event)
        for event in self.events():
            extra = set(event) - want[event["event"]] - {"ends_itself"}
            self.assertEqual(extra, set(), event["event"])

    def test_the_summary_is_of_the_measured_steps(self):
        summary = self.last(0, LOOP % "")
        steps = [e for e in self.events() if e["event"] == "step"]
        self.assertEqual([e["warmup"] for e in steps], [True] + [False] * 6)
        ms = sorted(e["ms"] for e in steps[1:])
        self.assertAlmostEqual(summary["step_ms"]["median"], (ms[2] + ms[3]) / 2)
        self.assertAlmostEqual(summary["tokens_per_s"], 128000 / summary["step_ms"]["median"])
        self.assertEqual((summary["steps"], summary["ended"]), (6, "max_steps"))
        self.assertAlmostEqual(summary["loss_first"], 4.9)
        self.assertAlmostEqual(summary["loss_last"], 4.3)

    def test_it_ends_at_the_confidence_interval(self):
        loose = {**CONFIG, "trial": {**CONFIG["trial"], "max_steps": 40, "ci": 100}}
        summary = self.last(0, LOOP % "", loose)
        self.assertEqual((summary["steps"], summary["ended"]), (3, "ci"))

    def test_ranks_that_know_nothing_of_each_other_end_at_max_steps_only(self):
        loose = {**CONFIG, "trial": {**CONFIG["trial"], "ci": 100}}
        self.assertEqual(self.run_script(LOOP % "", loose, WORLD_SIZE="2", RANK="0")[0], 0)
        self.assertEqual(self.events()[-1]["ended"], "max_steps")

    def test_a_loop_that_ignores_the_end_is_left(self):
        code, out, err = self.run_script(LOOP.replace("if trial.done", "if False") % "")
        self.assertEqual((code, out), (0, ""))
        self.assertEqual(self.events()[-1]["event"], "summary")

    def test_another_rank_writes_nothing(self):
        code = self.run_script(LOOP % "", RANK="1", WORLD_SIZE="2")[0]
        self.assertEqual(code, 0)
        self.assertFalse(os.path.exists(self.path))

    def test_another_rank_that_fails_says_so(self):
        bad = LOOP % "if n == 3: raise MemoryError('no room')"
        self.assertEqual(self.run_script(bad, RANK="1", WORLD_SIZE="2")[0], 66)
        self.assertEqual([e["event"] for e in self.events()], ["error"])
        self.assertEqual(self.events()[0]["rank"], 1)

    def test_without_a_daemon_it_is_a_plain_script(self):
        code, out, err = self.run_script(LOOP % "", config=None)
        self.assertEqual((code, out), (0, "steps 50 4 1 1\n"), err)
        self.assertFalse(os.path.exists(self.path))

    def test_without_a_daemon_ranks_that_share_a_batch_are_one_copy(self):
        shared = (LOOP % "").replace('"zero": 1', '"zero": 1, "tp": 2, "cp": 2')
        code, out, err = self.run_script(shared, config=None, WORLD_SIZE="4", RANK="0")
        self.assertEqual((code, out), (0, "steps 50 4 1 1\n"), err)

    def test_without_a_daemon_an_error_is_its_own(self):
        code, out, err = self.run_script(LOOP % "raise MemoryError('x')", config=None)
        self.assertEqual(code, 1)
        self.assertIn("MemoryError", err)

    def test_no_memory_is_oom(self):
        error = self.last(66, LOOP % "if n == 3: raise MemoryError('no room')")
        self.assertEqual((error["class"], error["rank"]), ("oom", 0))
        self.assertEqual(error["budget"], 2 << 30)

    def test_a_loss_that_is_no_number_is_numeric(self):
        error = self.last(67, LOOP % "step.loss = float('nan')")
        self.assertEqual((error["class"], error["rank"]), ("numeric", None))
        self.assertEqual(error["detail"], "loss is nan in step 1")

    def test_a_layout_that_the_script_refuses_is_illegal(self):
        error = self.last(65, LOOP % "raise partune.IllegalLayout('tp 2')")
        self.assertEqual((error["class"], error["detail"]), ("illegal", "tp 2"))

    def test_any_other_exception_is_told_with_its_traceback_on_stderr(self):
        code, out, err = self.run_script(LOOP % "raise ValueError('bad shape')")
        self.assertEqual(code, 1)
        self.assertEqual(self.events()[-1]["detail"], "ValueError: bad shape")
        self.assertIn("Traceback", err)

    def test_an_error_after_the_result_changes_nothing(self):
        late = (LOOP % "").rstrip() + "\n        raise ValueError('late')\n"
        code, out, err = self.run_script(late)
        self.assertEqual(code, 1)
        self.assertEqual(self.events()[-1]["event"], "summary")

    def test_a_loop_that_is_too_short_is_no_result(self):
        error = self.last(1, (LOOP % "").replace("n < 50", "n < 3"))
        self.assertIn("ended after 3 steps", error["detail"])

    def test_a_loop_that_is_long_enough_is_a_result(self):
        summary = self.last(0, (LOOP % "").replace("n < 50", "n < 5"))
        self.assertEqual((summary["steps"], summary["ended"]), (4, "steps"))

    def test_on_term_it_finishes_the_step_and_stops(self):
        stopped = self.last(75, LOOP % "if n == 3: os.kill(os.getpid(), signal.SIGTERM)")
        self.assertEqual((stopped["event"], stopped["n"]), ("stopped", 3))
        self.assertEqual([e["event"] for e in self.events()].count("step"), 3)

    def test_before_the_first_step_it_stops_at_once(self):
        process = self.start(LOOP.replace("n = 0", "time.sleep(60)") % "")
        while not os.path.exists(self.path) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 75)
        self.assertEqual(self.events()[-1]["event"], "stopped")

    def test_a_full_disk_is_io(self):
        code, out, err = self.run_script(LOOP % "", PARTUNE_TRIAL_EVENTS="/dev/full")
        self.assertEqual(code, 70)
        self.assertIn("No space left", err)

    def test_with_cuda_a_step_is_measured_by_events_on_the_device(self):
        code, out, err = self.run_script(CUDA + textwrap.dedent(LOOP % ""))
        self.assertEqual(code, 0, err)
        steps = [e for e in self.events() if e["event"] == "step"]
        self.assertEqual([e["ms"] for e in steps], [12.5] * 4)
        self.assertEqual(self.events()[-1]["memory"]["measured"], {"total": 123456, "rank": 0})
        self.assertIn("synchronized 4", out)

    def packages(self, names=("package-0", "package-1")):
        """A tree of powercap: real counters are not there or not readable where tests run."""
        root = os.path.join(self.folder.name, "powercap")
        for number, name in enumerate((*names, "psys")):
            zone = os.path.join(root, f"intel-rapl:{number}")
            os.makedirs(zone)
            for key, text in {
                "name": name,
                "energy_uj": "0",
                "max_energy_range_uj": "250000000",
            }.items():
                with open(os.path.join(zone, key), "w", encoding="ascii") as file:
                    file.write(text + "\n")
        return root

    def summary_of(self, script, config=CONFIG, **environment):
        code, out, err = self.run_script(script, config, **environment)
        self.assertEqual(code, 0, err)
        return self.events()[-1]

    def test_energy_is_that_of_all_packages_in_the_measured_steps(self):
        script = USE_HOST + textwrap.dedent(COUNTED)
        summary = self.summary_of(script, PARTUNE_POWERCAP=self.packages())
        self.assertAlmostEqual(summary["joules"], 2 * sum(range(2, 8)))

    def test_without_a_warm_up_energy_is_that_of_all_steps(self):
        config = {**CONFIG, "trial": {**CONFIG["trial"], "warmup_steps": 0}}
        script = USE_HOST + textwrap.dedent(COUNTED)
        summary = self.summary_of(script, config, PARTUNE_POWERCAP=self.packages())
        self.assertAlmostEqual(summary["joules"], 2 * sum(range(1, 7)))

    def test_energy_that_cannot_be_read_is_not_told(self):
        for root in (self.folder.name, self.packages(names=())):
            self.assertNotIn("joules", self.summary_of(LOOP % "", PARTUNE_POWERCAP=root))

    def test_ranks_that_know_nothing_of_each_other_tell_no_energy(self):
        script = USE_HOST + textwrap.dedent(COUNTED)
        many = {"WORLD_SIZE": "2", "RANK": "0", "PARTUNE_POWERCAP": self.packages()}
        self.assertNotIn("joules", self.summary_of(script, **many))

    def test_with_cuda_energy_is_the_gpu_s(self):
        script = CUDA + NVML + USE_GPU + textwrap.dedent(COUNTED)
        summary = self.summary_of(script, PARTUNE_POWERCAP=self.packages())
        self.assertAlmostEqual(summary["joules"], sum(range(2, summary["steps"] + 2)))

    def test_the_energy_of_a_gpu_that_nvml_does_not_know_is_not_told(self):
        script = USE_GPU + textwrap.dedent(COUNTED)
        for broken in ("healthy = False", "mig = 1", "del LIBRARIES['libcuda.so.1'].cuInit"):
            summary = self.summary_of(
                CUDA + NVML + broken + script, PARTUNE_POWERCAP=self.folder.name
            )
            self.assertNotIn("joules", summary, broken)

    def test_memory_that_cuda_lacks_is_oom_with_the_bytes_asked_for(self):
        bad = "if n == 3: raise torch.OutOfMemoryError('Tried to allocate 3.00 GiB')"
        error = self.last(66, CUDA + textwrap.dedent(LOOP % bad))
        self.assertEqual((error["class"], error["asked"]), ("oom", 3 << 30))

    def test_torch_is_not_imported(self):
        code, out, err = self.run_script((LOOP % "") + "    print('torch' in sys.modules)")
        self.assertEqual(out.splitlines()[-1], "False")
