"""partune in Python: make a training script tunable, and talk to the daemon.

    with partune.trial() as trial:
        ...                                   # trial.layout, trial.workload, trial.model
        for batch in batches:
            with trial.step(tokens=n) as step:
                step.loss = train(batch)
            if trial.done:
                break

    campaign = partune.Client().submit("campaign.json")
    for event in campaign.follow():
        print(event.kind, event.data)

docs/reference/python.md has every name. It needs only the standard library; torch is used if the
script has imported it.
"""

from partune import callbacks
from partune._client import Campaign, Client
from partune._failure import IllegalLayout
from partune._http import Event, Problem
from partune._trial import Step, Trial, trial
from partune._values import Values
from partune._version import __version__

__all__ = [
    "Campaign",
    "Client",
    "Event",
    "IllegalLayout",
    "Problem",
    "Step",
    "Trial",
    "Values",
    "__version__",
    "callbacks",
    "trial",
]
