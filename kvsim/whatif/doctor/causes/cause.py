"""The interface of a cause of a slow server: when it is suspected, on what evidence, and its
cures.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kvsim.plumbing.options import Options
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.scenario_tables import Table, with_value


@dataclass(frozen=True)
class Cure:
    """One change that may remove a cause. changes: keys of the scenario's tables and their values,
    None removes a key. flags: the same for `vllm serve`, or in words if no flag exists. caution:
    effects that a simulation of memory and time does not show.
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
    """Evidence for a cause in one run. evidence: sentences with numbers from the run.

    cures: changes to try; empty if no setting would cure it. proof: changes that remove only this
    cause, if its cures do more. The cures are tried only if the proof helps.
    """

    evidence: tuple[str, ...]
    cures: tuple[Cure, ...]
    proof: Cure | None = None


class Cause(Options):
    """One possible cause of a slow server.

    title: the fault, as a sentence's subject. resource: its cure takes memory or GPUs, or changes
    the model's answers, rather than only a setting. Such causes are examined after the settings are
    cured, since more resources would hide any other cause.
    """

    title: ClassVar[str]
    resource: ClassVar[bool] = False

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        """The suspicion of this cause in a run; None without evidence."""
        raise NotImplementedError(type(self).__name__)  # every registered cause overrides this
