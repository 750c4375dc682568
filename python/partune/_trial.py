"""A trial of a campaign around a training loop.

The daemon's word comes by the environment: PARTUNE_TRIAL_CONFIG, a file with model, cluster,
workload, layout and limits, and PARTUNE_TRIAL_EVENTS, the file that is written. Without the first
nobody tunes: then a trial writes nothing, ends nothing and costs nothing.

What all ranks must agree on, the end above all, is computed by each of them from the same exchanged
numbers.
"""

import json
import math
import os
import platform
import signal
import socket
import sys
import threading
import time
import traceback

from partune import _energy, _failure, _measure, _ranks
from partune._events import Events
from partune._values import Values, values
from partune._version import __version__

LIMITS = {"warmup_steps": 2, "min_steps": 5, "max_steps": 30, "ci": 0.02}


class _Over(BaseException):
    """Leaves a loop that continues after the trial has ended; never seen outside."""


class _Agreed:
    """Marks an error that every rank finds from the same numbers: rank 0 reports it."""


class _BadLoss(_Agreed, FloatingPointError):
    pass


class _TooFewSteps(_Agreed, RuntimeError):
    pass


class Step:
    """One step. Set `loss` (a number or a tensor), and `grad_norm` and `lr` if known."""

    def __init__(self, trial, tokens):
        self.tokens = tokens
        self.loss = self.grad_norm = self.lr = None
        self._trial = trial

    def __enter__(self):
        self._trial._begin()
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self._trial._end(self)
        return False


class Stopwatch:
    """Milliseconds of this rank: by CUDA events, without CUDA by the clock after a barrier."""

    def start(self):
        self._cuda = _ranks.cuda()
        if self._cuda:
            self._begin = self._cuda.Event(enable_timing=True)
            self._begin.record()
        else:
            _ranks.barrier()
            self._begin = time.monotonic()

    def stop(self):
        if not self._cuda:
            return 1000 * (time.monotonic() - self._begin)
        end = self._cuda.Event(enable_timing=True)
        end.record()
        end.synchronize()
        return self._begin.elapsed_time(end)


def as_number(value):
    """A number or a tensor of one element as float; None stays."""
    return None if value is None else float(getattr(value, "detach", lambda: value)())


class Trial:
    """What `partune.trial()` returns; see docs/reference/python.md."""

    def __init__(self, layout=None, workload=None, model=None):
        path = os.environ.get("PARTUNE_TRIAL_CONFIG")
        config = {}
        if path:
            with open(path, encoding="utf-8") as file:
                config = json.load(file)
        self.active = bool(path)
        self.layout = values({**(layout or {}), **config.get("layout", {})})
        self.workload = values({**(workload or {}), **config.get("workload", {})})
        self.model = values({**(model or {}), **config.get("model", {})})
        self.cluster = values(config.get("cluster", {}))
        self.limits = Values({**LIMITS, **config.get("trial", {})})
        self.data = os.environ.get("PARTUNE_TRIAL_DATA") if self.active else None
        self.rank = _ranks.rank()
        self.done = False
        self.n = 0
        self._ms = []
        self._losses = []
        self._memory = (0, 0)  # bytes, rank: the worst
        self._resident = 0
        self._meter = self._joules = None
        self._entered = self._begun = self._asked = self._stopped = self._summarized = False
        self._events = Events(
            os.environ.get("PARTUNE_TRIAL_EVENTS") if self.active else None, self.rank != 0
        )
        self._watch = Stopwatch()
        self._old_handler = None

    @property
    def micro_batches(self):
        """Micro-batches of one rank in a step: global_batch / (micro_batch x dp)."""
        splits = [self.layout.get(key, 1) for key in ("tp", "pp", "cp")]
        copies = self.layout.get("dp") or _ranks.world() // math.prod(splits)
        return self.workload.global_batch // (self.layout.micro_batch * copies)

    def step(self, tokens=None):
        """A step of the loop, as a context manager. TOKENS: of the whole job, not of this rank."""
        return Step(self, tokens)

    def take_term(self):
        """Let a SIGTERM end the trial; returns the handler that did something else, if any."""
        if self.active and threading.current_thread() is threading.main_thread():
            return signal.signal(signal.SIGTERM, self._on_term)
        return None

    def leave(self):
        """End a loop that continues after the trial; `done` must be true."""
        assert self.done
        if self.active:
            raise _Over

    # ---- around everything

    def __enter__(self):
        if not self.active:
            return self
        self._resident = _ranks.high_water()
        self._old_handler = self.take_term()
        self._hello()
        self._entered = True
        if self._asked:  # meanwhile
            self.__exit__(_Over, None, None)
        return self

    def __exit__(self, kind, error, trace):
        if not self.active:
            return False
        if self._old_handler is not None:
            signal.signal(signal.SIGTERM, self._old_handler)
        try:
            return self._leave(kind, error)
        finally:
            self._events.close()

    def _leave(self, kind, error):
        own = kind is None or issubclass(kind, _Over)
        # Frameworks end the process instead of their loop, above all after a SIGTERM.
        over = own or (issubclass(kind, SystemExit) and not error.code)
        if over and (self._stopped or (self._asked and not self._summarized)):
            self._say("stopped", n=self.n, reason="asked to stop by SIGTERM")
            raise SystemExit(_failure.EXIT_STOPPED)
        if over and not self._summarized:
            self._ran_out()
        elif not over and not self._summarized and issubclass(kind, Exception):
            traceback.print_exception(kind, error, error.__traceback__)
            self._fail(error)
        return own

    def _on_term(self, number, frame):
        """Asked to stop: at the end of a step, which all ranks reach; before the first, at once."""
        self._asked = True
        if self._entered and not self._begun:
            raise _Over

    # ---- a step

    def _begin(self):
        if not self.active:
            return
        if self.done:
            self.leave()
        if not self._begun:
            self._check_ranks()
        self._begun = True
        if not self.limits.warmup_steps and not self._meter:
            self._meter = _energy.Meter()
        if self._meter:
            self._meter.read(False)
        self._watch.start()

    def _check_ranks(self):
        """Ranks in groups of their own would each train alone, but count as the whole job."""
        world = self.layout.get("world")
        if world and _ranks.distributed() and _ranks.world() != world:
            raise RuntimeError(f"torch.distributed has {_ranks.world()} of {world} ranks")

    def _end(self, step):
        self.n += 1
        if not self.active:
            return
        ms = round(self._watch.stop(), 3)
        self._meter = self._meter or _energy.Meter()  # a first step to warm up has used CUDA
        self._meter.read(self.n > self.limits.warmup_steps)
        loss = as_number(step.loss)
        memory = _ranks.memory(self._resident)
        rows = _ranks.exchange(
            [ms, loss is not None, loss or 0.0, memory, self._asked, *self._meter.row]
        )
        self._take(step, rows)
        ended = self._ends()
        if ended:
            self._summarize(ended)
        elif any(row[4] for row in rows):
            self._stopped = self.done = True

    def _take(self, step, rows):
        """Count a step: ROWS has the numbers of every rank, the same on all of them."""
        warmup = self.n <= self.limits.warmup_steps
        times = [row[0] for row in rows]
        losses = [row[2] for row in rows if row[1]]
        loss = sum(losses) / len(losses) if losses else None
        self._memory = max([self._memory] + [(int(row[3]), rank) for rank, row in enumerate(rows)])
        self._losses.append(loss)
        self._joules = _energy.total([row[5:] for row in rows])
        if not warmup:
            self._ms.append(max(times))
        self._say(
            "step",
            n=self.n,
            warmup=warmup,
            ms=max(times),
            tokens=step.tokens,
            loss=loss,
            grad_norm=as_number(step.grad_norm),
            lr=as_number(step.lr),
            ranks=_measure.spread(times),
        )
        if loss is not None and not abs(loss) < float("inf"):
            raise _BadLoss(f"loss is {loss} in step {self.n}")

    @staticmethod
    def _alone():
        """There are other ranks, but no word of them: they would decide otherwise."""
        return _ranks.world() > 1 and not _ranks.distributed()

    def _ends(self):
        """Why the trial ends with this step, by the rule of the bundled trainer; None: not yet."""
        if len(self._ms) >= self.limits.max_steps:
            return "max_steps"
        if len(self._ms) < self.limits.min_steps or self._alone():
            return None
        found = _measure.stats(self._ms)
        return "ci" if found.ci95 <= self.limits.ci * found.median else None

    # ---- events

    def _say(self, event, force=False, **keys):
        try:
            self._events.write(event, force, **keys)
        except OSError as refused:
            print(f"partune: {refused}", file=sys.stderr)
            raise SystemExit(_failure.EXIT["io"]) from None

    def _hello(self):
        torch = sys.modules.get("torch")
        ranks = _ranks.world()
        one_host = ranks == 1 or os.environ.get("LOCAL_WORLD_SIZE") == str(ranks)
        build = f"python {platform.python_version()}"
        self._say(
            "hello",
            program=os.path.basename(sys.argv[0]) or "python",
            version=__version__,
            build=build + (f", torch {torch.__version__}" if torch else ""),
            pid=os.getpid(),
            model=self.model.get("name"),
            layout=self.layout,
            workload=self.workload,
            ranks=ranks,
            hosts=[socket.gethostname()] if one_host else None,
            ends_itself=True,
        )
        self._say("memory", planned=None, budget=self._budget())

    def _budget(self):
        gib = self.cluster.get("device", {}).get("memory_gib")
        return int(gib * (1 << 30)) if gib else None

    def _summarize(self, ended):
        found = _measure.stats(self._ms)
        rate = self.workload.global_batch * self.workload.seq * 1000 / found.median
        known = [loss for loss in self._losses if loss is not None]
        total, rank = self._memory
        # Ranks that know nothing of each other cannot add up.
        energy = {} if self._joules is None or self._alone() else {"joules": self._joules}
        self._say(
            "summary",
            steps=len(self._ms),
            warmup_steps=self.limits.warmup_steps,
            tokens_per_s=rate,
            # A 95 % interval is 1.96 standard errors to each side.
            tokens_per_s_se=rate * (found.ci95 / 1.96) / found.median,
            step_ms=found._asdict(),
            memory={"planned": None, "measured": {"total": total, "rank": rank}},
            loss_first=known[0] if known else None,
            loss_last=known[-1] if known else None,
            ended=ended,
            **energy,
        )
        self._summarized = self.done = True

    def _ran_out(self):
        """The script's own loop ended first."""
        if len(self._ms) >= self.limits.min_steps:
            self._summarize("steps")
            return
        self._fail(
            _TooFewSteps(
                f"the training loop ended after {self.n} steps; a trial needs "
                f"{self.limits.warmup_steps} to warm up and {self.limits.min_steps} measured ones"
            )
        )

    def _fail(self, error):
        kind = _failure.classify(error)
        more = {}
        if kind == "oom":
            more = {
                "memory_class": None,
                "asked": _failure.asked_bytes(error),
                "budget": self._budget(),
            }
        agreed = isinstance(error, _Agreed)
        rank = None if agreed else self.rank
        keys = {"class": kind, "rank": rank, "detail": _failure.detail(error), **more}
        self._say("error", force=not agreed, **keys)
        raise SystemExit(_failure.EXIT[kind])


def trial(layout=None, workload=None, model=None):
    """The trial that this process is part of. The arguments are used outside of a trial."""
    return Trial(layout, workload, model)
