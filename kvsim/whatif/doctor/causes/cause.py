"""The interface of a cause of trouble: when it is suspected, on what evidence, and its cures."""

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
        """The tables with the cure applied."""
        for key, value in self.changes.items():
            table = with_value(table, key, value, "doctor")
        return table


@dataclass(frozen=True)
class Suspicion:
    """evidence: what the run shows, each a sentence with its numbers.

    cures: changes to try; empty if no setting would cure it. proof: changes that remove this cause
    and do nothing else, for a cause with cures that do more. The cures are tried only if the proof
    helps.
    """

    evidence: tuple[str, ...]
    cures: tuple[Cure, ...]
    proof: Cure | None = None


class Cause(Options):
    """One cause.

    title: what is wrong, as a sentence's subject. resource: its cure takes memory, GPUs or the
    model's answers and not a setting alone. Such causes are examined with the settings cured, since
    more of everything hides any of them.
    """

    title: ClassVar[str]
    resource: ClassVar[bool] = False

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        """The suspicion of this cause in a run; None without evidence."""
        raise NotImplementedError(type(self).__name__)  # every registered cause overrides this
