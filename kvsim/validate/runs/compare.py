"""Simulation of every trial of some folders, and the comparison with the recordings."""

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
    """collection: the folder's name. simulated: all FIGURES; None where the run was refused, and
    then why.
    """

    collection: str
    trial: Trial
    simulated: dict[str, float] | None
    refused: str | None = None

    def errors(self) -> dict[str, float]:
        """Simulated / recorded - 1 of what is compared so; signed fractions."""
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
    """Compare all trials with these step times of their model, device and engine.

    progress: called with each name, and which of how many it is.
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
