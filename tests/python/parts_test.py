"""Parts of partune without a trial around them: statistics, the event file, exceptions."""
import ast
import errno
import json
import os
import re
import tempfile
import unittest
from unittest import mock

from partune import IllegalLayout, Values, _chart, _events, _failure, _measure, _ranks


class Measure(unittest.TestCase):
    """The numbers are those of tests/unit/trainer_measure.c."""

    @staticmethod
    def shuffled(n):
        return [1 + (i * 7) % n for i in range(n)]

    def test_quantiles_do_not_depend_on_the_order(self):
        found = _measure.stats(self.shuffled(11))
        self.assertEqual(found.median, 6)
        self.assertAlmostEqual(found.p10, 2)
        self.assertAlmostEqual(found.p90, 10)

    def test_the_interval_is_that_of_the_order_statistics(self):
        for n, half in ((5, 2), (6, 2.5), (10, 3.5), (20, 4.5)):
            self.assertAlmostEqual(_measure.stats(self.shuffled(n)).ci95, half)

    def test_many_steps_have_the_interval_of_the_normal_approximation(self):
        exact, rough = _measure.interval_rank(1000), _measure.interval_rank(1001)
        self.assertLessEqual(abs(exact - rough), 1)

    def test_no_steps_have_no_statistics(self):
        self.assertIsNone(_measure.stats([]))

    def test_the_spread_names_the_slowest_rank(self):
        found = _measure.spread([3.0, 9.0, 4.0])
        self.assertEqual(
            found, {"min": 3.0, "median": 4.0, "max": 9.0, "slowest": 1, "busy": [3.0, 9.0, 4.0]}
        )

    def test_many_ranks_are_listed_in_groups_by_their_slowest(self):
        found = _measure.spread([float(i) for i in range(100)])
        self.assertEqual(found["busy"], [float(i) for i in range(1, 100, 2)])
        self.assertEqual(found["slowest"], 99)


class Ranks(unittest.TestCase):
    def test_a_launcher_counts_before_the_allocation_around_it(self):
        batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
        for ours, want in (
            ({}, (0, 8)),
            ({"PMI_RANK": "3", "PMI_SIZE": "4"}, (3, 4)),
            ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "2"}, (2, 4)),
            ({"PMIX_RANK": "5", "SLURM_PROCID": "5"}, (5, 8)),
            ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ):
            with mock.patch.dict(os.environ, {**batch, **ours}, clear=True):
                self.assertEqual((_ranks.rank(), _ranks.world()), want)


class Notebook(unittest.TestCase):
    TRIALS = [{"n": n, "tokens_per_s": 1000.0 * n, "text": f"tp{n}"} for n in (1, 2)]

    @staticmethod
    def campaign(simulated, best=None):
        return {
            "id": "k3v9qw2m", "name": "dry", "state": "running", "simulated": simulated,
            "best": best, "progress": {"trials": 2},
        }

    def rates(self, html):
        return re.findall(r"[\w,]+ tokens/s", html)

    def test_a_simulated_campaign_says_so_before_it_has_a_best(self):
        self.assertIn("simulated", _chart.campaign_html(self.campaign(True), []))
        self.assertNotIn("simulated", _chart.campaign_html(self.campaign(False), []))

    def test_every_rate_of_a_simulated_campaign_is_called_simulated(self):
        best = {"text": "tp2", "tokens_per_s": 2000.0, "ratio": 2.0}
        html = _chart.campaign_html(self.campaign(True, best), self.TRIALS)
        self.assertEqual(set(self.rates(html)), {"simulated tokens/s"})
        html = _chart.campaign_html(self.campaign(False, best), self.TRIALS)
        self.assertEqual(len(self.rates(html)), 3)
        self.assertNotIn("simulated", html)


class EventFile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=os.environ["PT_BUILD"])
        self.path = os.path.join(self.folder.name, "events")

    def tearDown(self):
        self.folder.cleanup()

    def lines(self):
        with open(self.path, encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(text.endswith("\n"))
        return [json.loads(line) for line in text.splitlines()]

    def test_every_line_begins_as_the_protocol_says(self):
        events = _events.Events(self.path)
        events.write("hello", program="é")
        events.close()
        with open(self.path, "rb") as file:
            self.assertRegex(file.read(), rb'^\{"v":1,"event":"hello","t":[0-9.]+,"program":"\xc3')

    def test_each_line_is_one_write_and_a_second_attempt_appends(self):
        calls, write = [], os.write
        try:
            os.write = lambda fd, data: calls.append(data) or write(fd, data)
            for _ in range(2):
                events = _events.Events(self.path)
                events.write("step", n=1)
                events.close()
        finally:
            os.write = write
        self.assertEqual([data.count(b"\n") for data in calls], [1, 1])
        self.assertEqual([line["event"] for line in self.lines()], ["step", "step"])

    def test_numbers_that_are_not_finite_are_null(self):
        events = _events.Events(self.path)
        events.write("step", loss=float("nan"), ranks={"busy": [1.0, float("inf")]})
        events.close()
        self.assertIsNone(self.lines()[0]["loss"])
        self.assertEqual(self.lines()[0]["ranks"], {"busy": [1.0, None]})

    def test_another_rank_says_only_what_it_must(self):
        events = _events.Events(self.path, silent=True)
        events.write("step", n=1)
        self.assertFalse(os.path.exists(self.path))
        events.write("error", force=True, detail="x")
        events.close()
        self.assertEqual(self.lines()[0]["event"], "error")

    def test_after_a_refusal_nothing_more_is_written(self):
        events = _events.Events("/dev/full")
        with self.assertRaises(OSError):
            events.write("hello")
        events.write("step", n=1)
        events.close()


class Failure(unittest.TestCase):
    def test_exceptions_have_the_classes_of_the_protocol(self):
        class OutOfMemoryError(RuntimeError):
            pass

        class DistBackendError(RuntimeError):
            pass

        cases = (
            (MemoryError(), "oom"),
            (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB."), "oom"),
            (RuntimeError("CUDA error: out of memory"), "oom"),
            (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "oom"),
            (RuntimeError("NCCL error: unhandled cuda error, 'out of memory'"), "oom"),
            (OSError(errno.ENOMEM, "Cannot allocate memory"), "oom"),
            (FloatingPointError("loss is nan"), "numeric"),
            (AssertionError("Rank 0: found NaN in local forward loss calculation."), "numeric"),
            (RuntimeError("Loss or gradient norm is not finite on at least one rank"), "numeric"),
            (RuntimeError("Function 'MulBackward0' returned nan values in its 0th"), "numeric"),
            (ValueError("Detected nan and/or inf values in `embed.weight`."), "numeric"),
            (ValueError("The loss returned in `training_step` is nan."), "numeric"),
            (AssertionError("found no data"), "crash"),
            (DistBackendError("NCCL error in: ProcessGroupNCCL.cpp:1691"), "comm"),
            (RuntimeError("[../gloo/transport/tcp/pair.cc:598] Connection closed by peer"), "comm"),
            (ConnectionResetError("peer"), "comm"),
            (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "node_fail"),
            (RuntimeError("CUDA error: unknown error\nCUDA kernel errors might be"), "node_fail"),
            (
                RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
                "node_fail",
            ),
            (
                DistBackendError(
                    "NCCL error: unhandled cuda error, 'uncorrectable NVLink error detected "
                    "during the execution'"
                ),
                "node_fail",
            ),
            (RuntimeError("CUDA error: an illegal memory access was encountered"), "crash"),
            (RuntimeError("No CUDA GPUs are available"), "crash"),
            (IllegalLayout("tp 3 does not divide 64 columns"), "illegal"),
            (FileNotFoundError(errno.ENOENT, "no such file", "tokens.bin"), "io"),
            (ValueError("bad"), "crash"),
            (KeyError("NCCL"), "crash"),
        )
        for error, kind in cases:
            self.assertEqual(_failure.classify(error), kind, repr(error))

    def test_classes_have_the_exit_codes_of_the_protocol(self):
        want = {"illegal": 65, "oom": 66, "numeric": 67, "data": 68, "comm": 69, "io": 70}
        self.assertEqual({**want, "node_fail": 71, "crash": 1}, _failure.EXIT)

    def test_the_bytes_that_were_asked_for_are_read(self):
        self.assertEqual(
            _failure.asked_bytes(RuntimeError("Tried to allocate 2.50 GiB (GPU 0)")), 5 << 29
        )
        self.assertEqual(_failure.asked_bytes(RuntimeError("you tried to allocate 12 bytes")), 12)
        self.assertIsNone(_failure.asked_bytes(MemoryError()))

    def test_the_detail_is_one_line_with_the_kind_of_error(self):
        self.assertEqual(_failure.detail(ValueError("a\n b")), "ValueError: a b")
        self.assertEqual(_failure.detail(IllegalLayout("tp 3")), "tp 3")
        self.assertLess(len(_failure.detail(ValueError("x" * 1000))), 400)


class Source(unittest.TestCase):
    def test_every_module_is_python_3_9(self):
        folder = os.path.join(os.environ["PT_SRC"], "python", "partune")
        for name in os.listdir(folder):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    ast.parse(file.read(), name, feature_version=(3, 9))


class Settings(unittest.TestCase):
    def test_keys_are_attributes(self):
        layout = Values(tp=2)
        self.assertEqual((layout.tp, layout["tp"]), (2, 2))

    def test_an_absent_key_names_those_that_are_there(self):
        with self.assertRaisesRegex(AttributeError, 'no "pp" here, only: tp'):
            Values(tp=2).pp
