"""Data classes of a diagnosis: findings about causes, and the diagnosis of a server."""

from dataclasses import dataclass
from typing import Literal

from kvsim.whatif.doctor.causes import Cure
from kvsim.whatif.doctor.effect import Effect
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.doctor.spent import Spent
from kvsim.whatif.doctor.subject import DoctorSubject
from kvsim.whatif.replicates import Replicates
from kvsim.whatif.scenario_tables import Table

FindingOutcome = Literal[
    "cause", "beside", "trade", "unsure", "worse", "harmless", "no cure", "failed"
]
Rest = Literal["well", "load", "memory", "unknown", "refused"]


@dataclass(frozen=True)
class CauseFinding:
    """One suspected cause.

    name: in the registry. title: of its class. resource: its cure takes memory, GPUs or the model's
    answers. evidence: sentences. cure: the best of its cures; None where none was to be tried.
    effect: of the cure alone. on_top: of the cure together with the causes before it in the list,
    of a cause on replicates that nothing else has used. reason: why it could not be tried.

    outcome: `cause`, it hurts and the cure helps. `beside`, the cure helps alone and adds nothing
    to those before it. `trade`, requests would end sooner and begin later, or the reverse.
    `unsure`, the help may be chance. `worse`, the cure does harm. `harmless`, the evidence holds
    and the cure changes nothing. `no cure`, no setting would change it. `failed`, the cure cannot
    be run.
    """

    name: str
    title: str
    resource: bool
    evidence: tuple[str, ...]
    cure: Cure | None
    effect: Effect | None
    outcome: FindingOutcome
    on_top: Effect | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of one server. case: the run as it is. cured: the run with all causes cured, of
    the tables `best`; the same run where there is no cause. findings: causes first, in the order of
    their cures. together: the effect of all cures at once, on replicates that nothing else has
    seen.

    rest: what is left with all cures: `well`, nothing to speak of; `load`, requests still wait, and
    would with any memory; `memory`, requests still wait, and more memory or sequences would help;
    `unknown`, requests still wait, and the reason is not known; `refused`, none waits to speak of,
    and some are refused. spent: what requests took as it is, and cured, on fresh replicates.
    """

    case: ExaminedRun
    cured: ExaminedRun
    best: Table
    findings: tuple[CauseFinding, ...]
    together: Effect | None
    rest: Rest
    replicates: Replicates
    runs: int
    subject: DoctorSubject
    spent: tuple[Spent, Spent]

    @property
    def causes(self) -> tuple[CauseFinding, ...]:
        """The causes that slow the server, worst first, settings before resources."""
        return tuple(each for each in self.findings if each.outcome == "cause")

    @property
    def healthy(self) -> bool:
        """Whether no cause slows the server, and no memory is lost that no flag recovers."""
        return not self.causes and not self.incurable and self.rest == "well"

    @property
    def incurable(self) -> tuple[CauseFinding, ...]:
        """Confirmed suspicions that no flag cures."""
        return tuple(each for each in self.findings if each.outcome == "no cure")
