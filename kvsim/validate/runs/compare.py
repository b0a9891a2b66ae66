"""Simulate every published run in some folders, and compare with the recorded figures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.observed.trial import FIGURES, Trial
from kvsim.plumbing.errors import InputError
from kvsim.readers.detect import read_runs
from kvsim.step_time.options import StepTimeOptions
from kvsim.validate.runs.simulate import simulate_trial
from kvsim.validate.served import hardware_of

RELATIVE = ("ttft_s", "tpot_s", "e2e_s", "makespan_s", "running", "resident_tokens")
Progress = Callable[[str], None]


class Compared(NamedTuple):
    """A published run and its simulation.

    collection is the folder's name. simulated has all FIGURES; None if the run could not be
    simulated, and then `refused` says why.
    """

    collection: str
    trial: Trial
    simulated: dict[str, float] | None
    refused: str | None = None

    def errors(self) -> dict[str, float]:
        """Signed fractions (simulated / recorded - 1) of those FIGURES that are
        compared as ratios.
        """
        if self.simulated is None:
            return {}
        return {
            name: self.simulated[name] / value - 1.0
            for name, value in self.trial.recorded.items()
            if name in RELATIVE and value > 0
        }

    def summary(self) -> dict[str, Any]:
        """The summary for `--json`."""
        trial = self.trial
        return {
            "collection": self.collection,
            "name": trial.name,
            "model": trial.meta.model,
            "gpu": trial.meta.gpu,
            "tensor_parallel_size": trial.meta.tensor_parallel_size,
            "engine": trial.meta.engine,
            "requests": len(trial.requests),
            "errors": self.errors(),
            "recorded": dict(trial.recorded),
            "simulated": self.simulated
            and {name: self.simulated[name] for name in FIGURES if name in self.simulated},
            "refused": self.refused,
            "assumed": list(trial.assumed),
            "beyond": trial.beyond,
            "source": trial.meta.source,
        }


def compare_trials(
    folders: Sequence[Path], options: StepTimeOptions, progress: Progress | None = None
) -> list[Compared]:
    """Compare all runs in the folders, with step times built for each run's model, device and
    engine.

    progress is called with a text such as `NAME: run 3 of 20`.
    """
    compared, found = [], list(read_runs(folders))
    for at, (collection, trial) in enumerate(found, 1):
        if progress is not None:
            progress(f"{trial.name}: run {at} of {len(found)}")
        try:
            form = options.build(hardware_of(trial.meta))
            compared.append(Compared(collection, trial, simulate_trial(trial, form)))
        except InputError as error:
            compared.append(Compared(collection, trial, None, str(error)))
    return compared
