"""What a cause of trouble promises: when it is suspected, on what evidence, and what cures it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kvsim.plumbing.options import Options
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.scenario_tables import Table, with_value


@dataclass(frozen=True)
class Cure:
    """One way out. changes: keys of the scenario's tables and their values, None taking a key out.
    flags: the same for `vllm serve`, or in words where no flag does it. caution: what a simulation
    of memory and time does not show.
    """

    changes: Mapping[str, Any]
    flags: str
    caution: str = ""

    def put(self, table: Table) -> Table:
        """The tables cured."""
        for key, value in self.changes.items():
            table = with_value(table, key, value, "doctor")
        return table


@dataclass(frozen=True)
class Suspicion:
    """evidence: what the run shows, each a sentence with its numbers. cures: to be tried; none
    where nothing that can be set would cure it. proof: changes that take this cause away and do
    nothing else, for a cause whose cures do more; the cures are tried only if the proof helps.
    """

    evidence: tuple[str, ...]
    cures: tuple[Cure, ...]
    proof: Cure | None = None


class Cause(Options):
    """One cause. title: what is wrong, as a sentence's subject. resource: its cure takes memory,
    GPUs or the model's answers and not a setting alone; such causes are looked at with the settings
    cured, since more of everything hides any of them.
    """

    title: ClassVar[str]
    resource: ClassVar[bool] = False

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        """The suspicion of this cause in a run; None without evidence."""
        raise NotImplementedError(type(self).__name__)  # every registered cause overrides this
