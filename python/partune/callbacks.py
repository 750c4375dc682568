"""Report the steps of other trainers' loops to a trial around them.

    with partune.trial() as trial:
        trainer = Trainer(..., callbacks=[partune.callbacks.transformers(trial)])
        trainer.train()

Each function takes the trial and imports its framework only when called. docs/reference/python.md
lists what it needs of the framework. Outside of a trial, it does not change the loop.
"""

__all__ = ["lightning", "megatron", "torchtitan", "transformers"]


class _Steps:
    """Begins and ends the trial's steps where a framework calls from several places."""

    def __init__(self, trial, tokens):
        self.trial = trial
        self.tokens = tokens
        self.open = None
        self.loss = None
        self.micro_batches = 0

    def begin(self):
        """Once a step, whichever micro-batch of it this is; not after the trial has ended."""
        if self.open is None and not self.trial.done:
            self.open = self.trial.step(tokens=self.tokens)
            self.open.__enter__()
            self.loss = None
            self.micro_batches = 0

    def add(self, loss):
        """A micro-batch is done."""
        self.micro_batches += 1
        if loss is not None:
            loss = getattr(loss, "detach", lambda: loss)()
            self.loss = loss if self.loss is None else self.loss + loss

    def drop(self):
        """The open step, if any, is no measurement: every rank must drop the same ones."""
        self.open = None

    def end(self, micro_batches=0):
        """True: time to leave the loop. A step of less than MICRO_BATCHES, which frameworks take
        at the end of an epoch, does less than the step of a layout and is dropped."""
        step, self.open = self.open, None
        if step is not None and self.micro_batches >= micro_batches:
            step.loss = self.loss
            step.__exit__(None, None, None)
        return self.trial.done


def _check(value, what):
    if value != value or abs(value) == float("inf"):
        raise FloatingPointError(f"{what} is {value}")


def transformers(trial, tokens=None):
    """A TrainerCallback of Hugging Face's Trainer (and of trl's, which inherit from it).

    The Trainer shows losses in its log only: with logging_steps=1 each of them is looked at for
    NaN, and the events have none.
    """
    from transformers import TrainerCallback

    steps = _Steps(trial, tokens)

    class Callback(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            steps.drop()  # one that the end of an epoch has cut in two
            steps.begin()

        def on_substep_end(self, args, state, control, **kwargs):
            steps.add(None)

        def on_step_end(self, args, state, control, **kwargs):
            steps.add(None)
            if steps.end(args.gradient_accumulation_steps):
                control.should_training_stop = True

        def on_log(self, args, state, control, logs=None, **kwargs):
            if trial.active and isinstance((logs or {}).get("loss"), (int, float)):
                _check(logs["loss"], f"loss of step {state.global_step}")

    return Callback()


def lightning(trial, tokens=None):
    """A Callback of Lightning's Trainer (lightning, else pytorch_lightning).

    Validation and checkpoints may come between the micro-batches of a step, which is then dropped.
    """
    try:
        from lightning.pytorch import Callback as Base
    except ImportError:
        from pytorch_lightning import Callback as Base

    steps = _Steps(trial, tokens)

    class Callback(Base):
        _global_step = 0

        def on_train_start(self, trainer, pl_module):
            trial.take_term()  # at Lightning's, a rank would leave between the others' collectives

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if steps.open is None:
                self._global_step = trainer.global_step
            steps.begin()

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            # Of a micro-batch, already divided by their number.
            steps.add(outputs.get("loss") if isinstance(outputs, dict) else outputs)
            if trainer.global_step == self._global_step:
                return
            if steps.end(trainer.accumulate_grad_batches):
                trainer.should_stop = True

        def on_validation_start(self, trainer, pl_module):
            steps.drop()

        def on_save_checkpoint(self, trainer, pl_module, checkpoint):
            steps.drop()

    return Callback()


def torchtitan(trial, trainer, tokens=None):
    """Steps of a torchtitan Trainer, before its train() is called; returns the trainer.

    The loss is what torchtitan logs, of the steps that it logs (metrics.log_freq), on the ranks
    that know it: those of the last stage.
    """
    steps = _Steps(trial, tokens)
    train_step, proceed = trainer.train_step, trainer.should_continue_training
    metrics = trainer.metrics_processor
    log = metrics.log

    def note(step, global_avg_loss, *args, **kwargs):
        if getattr(trainer, "pp_has_last_stage", True):
            steps.add(global_avg_loss)
        return log(step, global_avg_loss, *args, **kwargs)

    def step(*args, **kwargs):
        steps.begin()
        result = train_step(*args, **kwargs)
        steps.end()
        return result

    metrics.log = note
    trainer.train_step = step
    trainer.should_continue_training = lambda: not trial.done and proceed()
    return trainer


def megatron(trial, tokens=None, module=None):
    """Steps of Megatron-LM, before pretrain() is called: its train_step is replaced in MODULE,
    which is megatron.training.training.

    train_step returns losses by name (on the last stage), whether the step was skipped, then
    whether to save a checkpoint, whether to leave the loop, and more. Before Megatron core 0.10
    these two are not there, and the trial leaves pretrain() at the next step.
    """
    if module is None:
        from megatron.training import training as module
    steps = _Steps(trial, tokens)
    train_step = module.train_step

    def step(*args, **kwargs):
        if trial.done:
            trial.leave()
        steps.begin()
        result = train_step(*args, **kwargs)
        for loss in (result[0] or {}).values():
            steps.add(loss)
            break
        over = steps.end() and trial.active
        return (*result[:3], True, *result[4:]) if over and len(result) > 4 else result

    module.train_step = step
