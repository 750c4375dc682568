"""A sampler of Optuna (Debian's python3-optuna): optuna_sampler.py tpe|nsga2|random ...

Each key with more than one value in the list is a categorical parameter. What is not in the list is
a failed trial, which costs nothing; out of memory is the value 0, as a user would tell it. What is
proposed again is answered by what it gave, so a measurement is not paid for twice; after many such
proposals in a row the next trial is a random layout that has not been tried.
"""
import logging
import random
import sys
import warnings

import optuna
import racing

MOST_REFUSED = 200  # proposals in a row that are not in the list or known


def samplers(name, seed):
    return {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True),
        "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed),
        "random": lambda: optuna.samplers.RandomSampler(seed=seed),
    }[name]()


class Search:
    def __init__(self, name, campaign, layouts):
        keys = sorted({key for layout in layouts for key in layout} - {"dp", "edp"})
        values = {key: sorted({layout.get(key) for layout in layouts}, key=str) for key in keys}
        self.axes = {key: some for key, some in values.items() if len(some) > 1}
        self.layouts = {self.point(layout): layout for layout in layouts}
        self.known = {}
        self.study = optuna.create_study(
            direction="maximize", sampler=samplers(name, campaign["search"]["seed"])
        )
        self.trial = None
        self.random = random.Random(campaign["search"]["seed"])

    def point(self, layout):
        return tuple(layout.get(key) for key in self.axes)

    def propose(self):
        trial = self.study.ask()
        at = tuple(trial.suggest_categorical(key, some) for key, some in self.axes.items())
        return trial, at

    def ask(self):
        unknown = [at for at in self.layouts if at not in self.known]
        if not unknown:
            return None
        trial, at = self.propose()
        for _ in range(MOST_REFUSED):
            if at in self.layouts and at not in self.known:
                break
            if at in self.known:
                self.study.tell(trial, self.known[at])
            else:
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            trial, at = self.propose()
        else:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            self.study.enqueue_trial(dict(zip(self.axes, self.random.choice(unknown))))
            trial, at = self.propose()
        self.trial = trial
        return self.layouts[at]

    def tell(self, layout, tokens_per_s):
        self.known[self.point(layout)] = tokens_per_s
        self.study.tell(self.trial, tokens_per_s)


logging.disable(logging.WARNING)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
racing.serve(Search(sys.argv.pop(1), *racing.files()))
