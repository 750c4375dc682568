"""Trials of two ranks under torch.distributed with gloo: what they agree on, and how they fail."""
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

SRC = os.environ["PT_SRC"]
CONFIG = {
    "model": {"name": "tiny"},
    "workload": {"global_batch": 8, "seq": 16},
    "layout": {"world": 2, "dp": 2, "micro_batch": 2},
    "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 6, "ci": 1e-9},
}
# Each step is longer than the one before: steps alike to the microsecond would be a result at once.
LOOP = """
    import os, signal, sys, time
    import torch, torch.distributed as dist
    import partune
    with partune.trial() as trial:
        meet = "file://" + sys.argv[1]
        dist.init_process_group("gloo", init_method=meet, rank=trial.rank, world_size=2)
        rank, n = trial.rank, 0
        while not trial.done and n < 50:
            n += 1
            with trial.step(tokens=128) as step:
                time.sleep(0.01 + 0.0005 * n)
                step.loss = torch.tensor(4.0 + rank, requires_grad=True)
                %s
"""


class Ranks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=os.environ["PT_BUILD"])
        self.path = os.path.join(self.folder.name, "events")

    def tearDown(self):
        self.folder.cleanup()

    def run_both(self, line, config=CONFIG, loop=LOOP):
        """Exit codes of both ranks, and the events."""
        file = os.path.join(self.folder.name, "config.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump(config, out)
        env = dict(
            os.environ,
            PYTHONPATH=SRC + "/python",
            PYTHONDONTWRITEBYTECODE="1",
            OMP_NUM_THREADS="1",
            GLOO_SOCKET_IFNAME="lo",
            PARTUNE_TRIAL_CONFIG=file,
            PARTUNE_TRIAL_EVENTS=self.path,
            WORLD_SIZE="2",
        )
        script = textwrap.dedent(loop % line)
        both = [
            subprocess.Popen(
                [sys.executable, "-c", script, self.folder.name + "/meet"],
                env={**env, "RANK": str(rank)},
                text=True,
                stderr=subprocess.PIPE,
            )
            for rank in range(2)
        ]
        self.errors = [process.communicate(timeout=120)[1] for process in both]
        with open(self.path, encoding="utf-8") as out:
            return [process.returncode for process in both], [json.loads(line) for line in out]

    def test_steps_have_the_slowest_rank_and_the_mean_loss(self):
        codes, events = self.run_both("")
        self.assertEqual(codes, [0, 0], self.errors)
        steps = [event for event in events if event["event"] == "step"]
        self.assertEqual(len(steps), 7)
        for step in steps:
            busy = step["ranks"]["busy"]
            self.assertEqual((len(busy), step["ms"]), (2, max(busy)))
            self.assertEqual(step["ranks"]["slowest"], busy.index(max(busy)))
            self.assertAlmostEqual(step["loss"], 4.5)
        self.assertEqual(events[-1]["event"], "summary")

    def test_the_memory_is_that_of_the_worst_rank(self):
        events = self.run_both("rank and n == 1 and setattr(trial, 'kept', bytearray(1 << 28))")[1]
        measured = events[-1]["memory"]["measured"]
        self.assertEqual(measured["rank"], 1)
        self.assertGreaterEqual(measured["total"], 1 << 28)

    def joules_of(self, line):
        """Of steps of 10 J each on this host; each rank also does LINE in each step."""
        root = os.path.join(self.folder.name, "powercap")
        zone = os.path.join(root, "intel-rapl:0")
        os.makedirs(zone)
        for name in ("name", "energy_uj", "max_energy_range_uj"):
            with open(os.path.join(zone, name), "w", encoding="ascii") as file:
                file.write({"name": "package-0", "energy_uj": "0"}.get(name, "99999999"))
        os.environ["PARTUNE_POWERCAP"] = root
        try:
            path = zone + "/energy_uj"
            use = f"rank or os.pwrite(os.open('{path}', os.O_WRONLY), b'%d' % (10000000 * n), 0)"
            codes, events = self.run_both(f"{line or 0}; {use}; dist.barrier()")
        finally:
            del os.environ["PARTUNE_POWERCAP"]
        self.assertEqual(codes, [0, 0], self.errors)
        return events[-1].get("joules")

    def test_ranks_that_are_in_different_groups_are_no_result(self):
        apart = LOOP.replace('rank=trial.rank, world_size=2', 'rank=0, world_size=1')
        apart = apart.replace('sys.argv[1]', 'sys.argv[1] + str(trial.rank)')
        codes, events = self.run_both("", loop=apart)
        self.assertEqual(codes, [1, 1], self.errors)
        self.assertEqual({e["event"] for e in events}, {"hello", "memory", "error"})
        self.assertIn("torch.distributed has 1 of 2 ranks", events[-1]["detail"])

    def test_the_energy_of_a_host_counts_once(self):
        self.assertAlmostEqual(self.joules_of(""), 60)

    def test_the_energy_of_one_host_of_two_is_not_told(self):
        elsewhere = "rank and os.environ.update(PARTUNE_POWERCAP='/')"
        self.assertIsNone(self.joules_of(elsewhere))

    def test_a_stop_that_one_rank_hears_stops_all_at_the_same_step(self):
        codes, events = self.run_both("rank and n == 3 and os.kill(os.getpid(), signal.SIGTERM)")
        self.assertEqual(codes, [75, 75], self.errors)
        self.assertEqual((events[-1]["event"], events[-1]["n"]), ("stopped", 3))

    def test_a_loss_of_one_rank_that_is_no_number_ends_all_with_one_line(self):
        codes, events = self.run_both("step.loss = float('inf') if rank and n == 2 else 1.0")
        self.assertEqual(codes, [67, 67], self.errors)
        self.assertEqual([e["class"] for e in events if e["event"] == "error"], ["numeric"])

    def test_the_rank_without_memory_is_named_before_what_follows_from_it(self):
        codes, events = self.run_both("if rank and n == 2: raise MemoryError('4 GiB')")
        self.assertEqual(codes, [69, 66], self.errors)
        errors = [(e["class"], e["rank"]) for e in events if e["event"] == "error"]
        self.assertEqual(errors, [("oom", 1), ("comm", 0)])

    def test_a_rank_that_is_killed_is_comm(self):
        codes, events = self.run_both("rank and n == 2 and os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual(codes, [69, -9], self.errors)
        self.assertEqual(events[-1]["class"], "comm")
