"""Callbacks of other frameworks, which are not here: stand-ins call them in the order and with the
arguments that each framework documents."""
import json
import os
import signal
import sys
import tempfile
import types
import unittest
from unittest import mock

import partune
from partune import callbacks

CONFIG = {
    "layout": {"micro_batch": 2, "dp": 1},
    "workload": {"global_batch": 4, "seq": 8},
    "model": {"name": "m"},
    "cluster": {},
    "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3, "ci": 0.0},
}


class Tensor:
    """Of one element; adds up, and has to be detached."""

    def __init__(self, value, attached=True):
        self.value, self.attached = value, attached

    def detach(self):
        return Tensor(self.value, False)

    def __add__(self, other):
        return Tensor(self.value + other.value, self.attached or other.attached)

    def __float__(self):
        assert not self.attached, "float() of a tensor that needs gradients"
        return float(self.value)


def nothing(*args, **kwargs):
    """A hook of a framework's base class."""


class Base(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=os.environ["PT_BUILD"])
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "events")

    def inside(self, tune=True):
        """A trial, or what is none."""
        config = os.path.join(self.folder.name, "config.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        tuned = {"PARTUNE_TRIAL_CONFIG": config, "PARTUNE_TRIAL_EVENTS": self.path} if tune else {}
        with mock.patch.dict(os.environ, tuned):
            return partune.trial(workload=CONFIG["workload"], layout=CONFIG["layout"])

    def events(self, kind):
        with open(self.path, encoding="utf-8") as file:
            return [e for e in map(json.loads, file) if e["event"] == kind]

    def ended_as_a_trial(self, losses):
        steps = self.events("step")
        self.assertEqual([s["n"] for s in steps], [1, 2, 3, 4])  # one to warm up, three measured
        self.assertEqual([s.get("loss") for s in steps], losses)
        self.assertEqual([s["tokens"] for s in steps], [32] * 4)
        self.assertEqual(len(self.events("hello")), 1)
        self.assertEqual(self.events("summary")[0]["ended"], "max_steps")


class Transformers(Base):
    def setUp(self):
        super().setUp()
        module = types.ModuleType("transformers")
        module.TrainerCallback = type("TrainerCallback", (), {"on_substep_end": nothing})
        patch = mock.patch.dict(sys.modules, transformers=module)
        patch.start()
        self.addCleanup(patch.stop)

    def train(self, callback, steps, losses=(), epoch=1000, whole=True):
        """The order of Trainer._inner_training_loop, with epochs of EPOCH micro-batches, two of
        them in a step. WHOLE: the last step of an epoch ends with it (since 4.46); else a step
        goes on in the next epoch."""
        control = types.SimpleNamespace(should_training_stop=False)
        state = types.SimpleNamespace(global_step=0)
        args = types.SimpleNamespace(gradient_accumulation_steps=2)
        total = 0
        while state.global_step < steps and not control.should_training_stop:
            micro = total % epoch
            total += 1
            if micro % 2 == 0:
                callback.on_step_begin(args, state, control, model=None)
            if (micro % 2 == 0 and micro + 1 < epoch) if whole else total % 2:
                callback.on_substep_end(args, state, control, model=None)
                continue
            state.global_step += 1
            callback.on_step_end(args, state, control, model=None)
            if state.global_step <= len(losses):
                logs = {"loss": losses[state.global_step - 1], "epoch": 0.1}
                callback.on_log(args, state, control, logs=logs)
        callback.on_log(args, state, control, logs={"train_runtime": 1.0})
        return state.global_step

    def test_a_trial_ends_the_trainer(self):
        with self.inside() as trial:
            done = self.train(callbacks.transformers(trial, tokens=32), 50, [5.0] * 50)
        self.assertEqual(done, 4)
        self.ended_as_a_trial([None] * 4)

    def test_the_step_that_an_epoch_cuts_short_is_not_measured(self):
        with self.inside() as trial:
            done = self.train(callbacks.transformers(trial, tokens=32), 50, epoch=3)
        self.assertEqual(done, 7)  # every other step has one micro-batch
        self.ended_as_a_trial([None] * 4)

    def test_a_step_over_the_end_of_an_epoch_is_not_measured(self):
        with self.inside() as trial:
            done = self.train(callbacks.transformers(trial, tokens=32), 50, epoch=3, whole=False)
        # Of three, the second is cut in two; the third begins without on_step_begin.
        self.assertEqual(done, 10)
        self.ended_as_a_trial([None] * 4)

    def test_a_loss_that_is_not_finite_is_numeric(self):
        with self.assertRaises(SystemExit) as left, mock.patch("traceback.print_exception"):
            with self.inside() as trial:
                self.train(callbacks.transformers(trial, tokens=32), 50, [5.0, float("nan")])
        self.assertEqual(left.exception.code, 67)
        self.assertEqual(self.events("error")[0]["class"], "numeric")
        self.assertIn("loss of step 2 is nan", self.events("error")[0]["detail"])

    def test_outside_of_a_trial_nothing_changes(self):
        with self.inside(tune=False) as trial:
            done = self.train(callbacks.transformers(trial), 50, [float("nan")] * 50)
        self.assertEqual(done, 50)
        self.assertFalse(os.path.exists(self.path))


class Lightning(Base):
    def setUp(self):
        super().setUp()
        package, module = types.ModuleType("lightning"), types.ModuleType("lightning.pytorch")
        names = ("on_train_start", "on_validation_start", "on_save_checkpoint")
        hooks = dict.fromkeys(names, nothing)
        module.Callback = type("Callback", (), hooks)
        patch = mock.patch.dict(sys.modules, {"lightning": package, "lightning.pytorch": module})
        patch.start()
        self.addCleanup(patch.stop)

    @staticmethod
    def train(callback, batches, accumulate, outputs, epoch=1000, validate=0, save=0):
        """The order of the training epoch's loop; its losses are divided by ACCUMULATE. An epoch
        ends with a step. Every VALIDATE and every SAVE batches something else is done."""
        trainer = types.SimpleNamespace(
            global_step=0, should_stop=False, accumulate_grad_batches=accumulate
        )
        for index in range(batches):
            batch = index % epoch
            callback.on_train_batch_start(trainer, None, None, batch)
            trainer.global_step += (batch + 1) % accumulate == 0 or batch + 1 == epoch
            callback.on_train_batch_end(trainer, None, outputs(index), None, batch)
            if save and (batch + 1) % save == 0:
                callback.on_save_checkpoint(trainer, None, {})
            if validate and (batch + 1) % validate == 0:
                callback.on_validation_start(trainer, None)
            if trainer.should_stop:
                break
        return trainer.global_step

    def test_a_step_is_that_of_the_optimizer(self):
        with self.inside() as trial:
            done = self.train(
                callbacks.lightning(trial, tokens=32), 100, 2, lambda i: {"loss": Tensor(1.0 + i % 2)}
            )
        self.assertEqual(done, 4)
        self.ended_as_a_trial([3.0] * 4)

    def test_training_steps_may_return_nothing(self):
        with self.inside() as trial:
            done = self.train(callbacks.lightning(trial, tokens=32), 100, 1, lambda i: None)
        self.assertEqual(done, 4)
        self.ended_as_a_trial([None] * 4)


    def test_the_step_that_an_epoch_cuts_short_is_not_measured(self):
        with self.inside() as trial:
            callback = callbacks.lightning(trial, tokens=32)
            done = self.train(callback, 100, 2, lambda i: {"loss": Tensor(1.5)}, epoch=3)
        self.assertEqual(done, 7)
        self.ended_as_a_trial([3.0] * 4)

    def test_a_signal_is_the_trials_and_not_lightnings(self):
        with self.assertRaises(SystemExit) as left, self.inside() as trial:
            callback = callbacks.lightning(trial, tokens=32)
            before = signal.signal(signal.SIGTERM, lambda *args: sys.exit("between two micro-batches"))
            self.addCleanup(signal.signal, signal.SIGTERM, signal.SIG_DFL)
            self.assertEqual(before, trial._on_term)
            callback.on_train_start(None, None)
            send = lambda i: os.kill(os.getpid(), signal.SIGTERM) if i == 2 else None
            self.train(callback, 100, 2, send)
        self.assertEqual(left.exception.code, 75)
        self.assertEqual([e["n"] for e in self.events("stopped")], [2])

    def test_a_step_with_validation_or_a_checkpoint_inside_is_not_measured(self):
        for between in ({"validate": 3}, {"save": 3}):
            with self.subTest(**between), self.inside() as trial:
                callback = callbacks.lightning(trial, tokens=32)
                done = self.train(callback, 100, 2, lambda i: {"loss": Tensor(1.5)}, **between)
            self.assertEqual(done, 6)  # after batches 3, 6, 9: between those of steps 2 and 5
            self.ended_as_a_trial([3.0] * 4)
            os.remove(self.path)


class Entry(Base):
    def test_a_signal_while_the_trial_begins_stops_it(self):
        trial = self.inside()
        hello = trial._hello

        def interrupted():
            hello()
            os.kill(os.getpid(), signal.SIGTERM)

        with mock.patch.object(trial, "_hello", interrupted):
            with self.assertRaises(SystemExit) as left, trial:
                self.fail("entered")
        self.assertEqual(left.exception.code, 75)
        self.assertEqual([e["n"] for e in self.events("stopped")], [0])


class Torchtitan(Base):
    class Metrics:
        def __init__(self):
            self.logged = []

        def log(self, step, global_avg_loss, global_max_loss, grad_norm, extra_metrics=None):
            self.logged.append(step)

    class Trainer:
        def __init__(self, log_freq=1):
            self.step, self.seen, self.log_freq = 0, [], log_freq
            self.metrics_processor = Torchtitan.Metrics()

        def should_continue_training(self):
            return self.step < 50

        def train_step(self, data_iterator):
            self.seen.append(next(data_iterator))
            if self.step % self.log_freq == 0:
                self.metrics_processor.log(
                    self.step, 6.0 / self.step, 7.0, 0.5, extra_metrics={"lr": 0.1}
                )

        def train(self):
            data_iterator = iter(range(100))
            while self.should_continue_training():
                self.step += 1
                self.train_step(data_iterator)

    def test_the_loop_ends_after_the_trials_last_step(self):
        with self.inside() as trial:
            trainer = callbacks.torchtitan(trial, self.Trainer(), tokens=32)
            trainer.train()
        self.assertEqual(trainer.seen, [0, 1, 2, 3])
        self.assertEqual(trainer.metrics_processor.logged, [1, 2, 3, 4])
        self.ended_as_a_trial([6.0, 3.0, 2.0, 1.5])

    def test_losses_are_those_that_torchtitan_logs(self):
        with self.inside() as trial:
            callbacks.torchtitan(trial, self.Trainer(log_freq=2), tokens=32).train()
        self.ended_as_a_trial([None, 3.0, None, 1.5])

    def test_only_the_last_stage_has_losses(self):
        trainer = self.Trainer()
        trainer.pp_has_last_stage = False
        with self.inside() as trial:
            callbacks.torchtitan(trial, trainer, tokens=32).train()
        self.ended_as_a_trial([None] * 4)

    def test_outside_of_a_trial_it_trains_to_its_end(self):
        with self.inside(tune=False) as trial:
            trainer = callbacks.torchtitan(trial, self.Trainer())
            trainer.train()
        self.assertEqual(len(trainer.seen), 50)


class Megatron(Base):
    @staticmethod
    def pretrain(module, last_stage=True):
        """The loop of megatron.training.training.train: it leaves after should_exit."""
        done = 0
        while done < 50:
            result = module.train_step(1, 2, config=3)
            losses, skipped, checkpoint, leave, code, norm, zeros, logit = result
            assert not checkpoint and not skipped and norm == 0.5 and logit == 0
            done += 1
            if leave:
                sys.exit(code)
        return done

    @staticmethod
    def module(losses):
        def train_step(forward, data, config=None):
            assert (forward, data, config) == (1, 2, 3)
            return losses, False, False, False, 0, 0.5, None, 0

        return types.SimpleNamespace(train_step=train_step)

    def test_should_exit_ends_the_loop(self):
        module = self.module({"lm loss": Tensor(4.0)})
        with self.assertRaises(SystemExit) as left:
            with self.inside() as trial:
                callbacks.megatron(trial, tokens=32, module=module)
                self.pretrain(module)
        self.assertEqual(left.exception.code, 0)
        self.ended_as_a_trial([4.0] * 4)

    def test_a_signal_within_a_step_stops_although_the_loop_exits_with_0(self):
        module = self.module({"lm loss": Tensor(4.0)})
        new = module.train_step

        def interrupted(*args, **kwargs):
            os.kill(os.getpid(), signal.SIGTERM)
            return new(*args, **kwargs)

        module.train_step = interrupted
        with self.assertRaises(SystemExit) as left:
            with self.inside() as trial:
                callbacks.megatron(trial, tokens=32, module=module)
                self.pretrain(module)
        self.assertEqual(left.exception.code, 75)
        self.assertEqual([e["n"] for e in self.events("stopped")], [1])

    def test_before_core_0_10_the_trial_leaves_the_loop(self):
        module = self.module({"lm loss": Tensor(4.0)})
        new = module.train_step
        module.train_step = lambda *args, **kwargs: (*new(*args, **kwargs)[:2], 0.5, None)
        with self.inside() as trial:
            callbacks.megatron(trial, tokens=32, module=module)
            while True:
                losses, skipped, norm, zeros = module.train_step(1, 2, config=3)
                assert norm == 0.5 and zeros is None
        self.ended_as_a_trial([4.0] * 4)

    def test_only_the_last_stage_has_losses(self):
        module = self.module({})
        with self.assertRaises(SystemExit):
            with self.inside() as trial:
                callbacks.megatron(trial, tokens=32, module=module)
                self.pretrain(module)
        self.ended_as_a_trial([None] * 4)

    def test_outside_of_a_trial_nothing_changes(self):
        module = self.module({"lm loss": Tensor(4.0)})
        with self.inside(tune=False) as trial:
            callbacks.megatron(trial, module=module)
            self.assertEqual(self.pretrain(module), 50)
