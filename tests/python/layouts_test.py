"""docs/examples/pytorch/train.py: losses of its layouts next to those of one rank, in double.

In double no rounding error of a gradient comes near Adam's epsilon of 1e-8, which keeps the update
of a weight from jumping where its gradient is a sum of 0. It also makes a wrong scale of gradients
visible, which Adam takes out of everything but that epsilon.
"""

import json
import multiprocessing
import os
import runpy
import socket
import tempfile
import unittest

import torch

TRAIN = os.environ["PT_SRC"] + "/docs/examples/pytorch/train.py"
NEW = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 6)
SHARDS = NEW and hasattr(torch.cpu.Stream, "record_event")  # torch 2.6: on GPUs only
STEPS = 5
MODEL = {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "vocab": 64}
WORK = {"global_batch": 8, "seq": 16}
# Terms of the sums on the longest path from ids to loss, by which orders of summation can differ.
TERMS = (
    MODEL["layers"] * (5 * MODEL["hidden"] + MODEL["ffn"] + 2 * WORK["seq"])
    + MODEL["vocab"]
    + WORK["global_batch"] * WORK["seq"]
)


class Layouts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=os.environ["PT_BUILD"])
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def events(self, world, **layout):
        """Of a trial of WORLD ranks."""
        layout = {"world": world, "tp": 1, "zero": 0, "micro_batch": 2, **layout}
        layout = {"recompute": "none", "overlap_grad_reduce": 1, **layout}
        layout["dp"] = world // layout["tp"]
        limits = {"warmup_steps": 0, "min_steps": STEPS, "max_steps": STEPS, "ci": 1e-9}
        config = {"model": MODEL, "workload": WORK, "layout": layout, "trial": limits}
        with open(self.path("config"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        if os.path.exists(self.path("events")):
            os.remove(self.path("events"))
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        # Forked, so that torch is imported once: the test itself never computes.
        fork = multiprocessing.get_context("fork").Process
        ranks = [fork(target=self.train, args=(rank, world, port)) for rank in range(world)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        self.codes = [rank.exitcode for rank in ranks]
        with open(self.path("events"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def train(self, rank, world, port):
        """A rank, in a process of its own."""
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            GLOO_SOCKET_IFNAME="lo",
            USE_LIBUV="0",  # Debian's PyTorch is built without
            PARTUNE_TRIAL_CONFIG=self.path("config"),
            PARTUNE_TRIAL_EVENTS=self.path("events"),
        )
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        runpy.run_path(TRAIN, run_name="__main__")

    def losses(self, world, **layout):
        return [e["loss"] for e in self.events(world, **layout) if e["event"] == "step"]

    def same_losses(self, layouts):
        want = self.losses(1, micro_batch=WORK["global_batch"])
        self.assertEqual((len(want), self.codes), (STEPS, [0]))
        self.assertLess(want[-1], want[0])
        for world, layout in layouts:
            with self.subTest(world=world, **layout):
                got = self.losses(world, **layout)
                self.assertEqual((len(got), self.codes), (STEPS, [0] * world))
                for n, (one, other) in enumerate(zip(want, got)):
                    # The passes of this step and those whose gradients it has, there and back.
                    bound = (2 * n + 1) * TERMS * 2.0**-53 * one
                    self.assertLessEqual(abs(one - other), bound, f"step {n + 1}")

    def test_micro_batch_recompute_and_buckets_do_not_change_losses(self):
        other = {"micro_batch": 4, "recompute": "full", "overlap_grad_reduce": 0}
        self.same_losses([(2, {}), (2, other)])

    @unittest.skipUnless(NEW, f"torch {torch.__version__} is older than 2.6")
    def test_tp_does_not_change_losses(self):
        self.same_losses([(2, {"tp": 2}), (4, {"tp": 2, "recompute": "full"})])

    @unittest.skipUnless(SHARDS, f"FSDP2 of torch {torch.__version__} does not run on CPUs")
    def test_zero_does_not_change_losses(self):
        self.same_losses(
            [
                (2, {"zero": 3}),
                (2, {"tp": 2, "zero": 3, "micro_batch": 4}),
                (4, {"tp": 2, "zero": 3}),
                (4, {"tp": 2, "zero": 3, "recompute": "full", "micro_batch": 1}),
            ]
        )

    def illegal(self, why, layout):
        errors = [e for e in self.events(2, **layout) if e["event"] == "error"]
        self.assertEqual({e["class"] for e in errors}, {"illegal"})
        self.assertEqual(self.codes, [65, 65])
        self.assertIn(why, errors[0]["detail"])

    @unittest.skipIf(SHARDS or not NEW, f"torch {torch.__version__} has no FSDP2, or on CPUs, too")
    def test_zero_is_illegal_where_fsdp2_needs_gpus(self):
        self.illegal(f"FSDP2 of torch {torch.__version__} needs GPUs", {"zero": 3})

    @unittest.skipIf(NEW, f"torch {torch.__version__} has everything")
    def test_before_torch_2_6_tp_and_zero_are_illegal(self):
        for layout in ({"tp": 2}, {"zero": 3}):
            with self.subTest(**layout):
                self.illegal(f"torch {torch.__version__} is older than 2.6", layout)
