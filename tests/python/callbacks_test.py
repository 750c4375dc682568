"""Callbacks of other frameworks, which are not here: stand-ins call them in the order and with the
arguments that each framework documents."""
import json
import os
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
        module.TrainerCallback = type("TrainerCallback", (), {})
        patch = mock.patch.dict(sys.modules, transformers=module)
        patch.start()
        self.addCleanup(patch.stop)

    def train(self, callback, steps, losses=(), accumulate=2):
        """The order of Trainer._inner_training_loop."""
        control = types.SimpleNamespace(should_training_stop=False)
        state = types.SimpleNamespace(global_step=0)
        for n in range(steps):
            for micro in range(accumulate):
                if micro == 0:
                    callback.on_step_begin(None, state, control, model=None)
                if micro < accumulate - 1:
                    getattr(callback, "on_substep_end", lambda *a, **k: None)(None, state, control)
            state.global_step += 1
            callback.on_step_end(None, state, control, model=None)
            if n < len(losses):
                callback.on_log(None, state, control, logs={"loss": losses[n], "epoch": 0.1})
            if control.should_training_stop:
                break
        callback.on_log(None, state, control, logs={"train_runtime": 1.0})
        return state.global_step

    def test_a_trial_ends_the_trainer(self):
        with self.inside() as trial:
            done = self.train(callbacks.transformers(trial, tokens=32), 50, [5.0] * 50)
        self.assertEqual(done, 4)
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
        module.Callback = type("Callback", (), {})
        patch = mock.patch.dict(sys.modules, {"lightning": package, "lightning.pytorch": module})
        patch.start()
        self.addCleanup(patch.stop)

    @staticmethod
    def train(callback, batches, accumulate, outputs):
        """The order of the training epoch's loop; its losses are divided by ACCUMULATE."""
        trainer = types.SimpleNamespace(global_step=0, should_stop=False)
        for index in range(batches):
            callback.on_train_batch_start(trainer, None, None, index)
            trainer.global_step += (index + 1) % accumulate == 0
            callback.on_train_batch_end(trainer, None, outputs(index), None, index)
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


class Torchtitan(Base):
    class Trainer:
        def __init__(self):
            self.step, self.seen = 0, []

        def should_continue_training(self):
            return self.step < 50

        def train_step(self, data_iterator):
            self.seen.append(next(data_iterator))

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
            losses, skipped, checkpoint, leave, code, norm, zeros = module.train_step(1, 2, config=3)
            assert not checkpoint and not skipped and norm == 0.5
            done += 1
            if leave:
                sys.exit(code)
        return done

    @staticmethod
    def module(losses):
        def train_step(forward, data, config=None):
            assert (forward, data, config) == (1, 2, 3)
            return losses, False, False, False, 0, 0.5, None

        return types.SimpleNamespace(train_step=train_step)

    def test_should_exit_ends_the_loop(self):
        module = self.module({"lm loss": Tensor(4.0)})
        with self.assertRaises(SystemExit) as left:
            with self.inside() as trial:
                callbacks.megatron(trial, tokens=32, module=module)
                self.pretrain(module)
        self.assertEqual(left.exception.code, 0)
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
