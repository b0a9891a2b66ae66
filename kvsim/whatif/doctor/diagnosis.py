"""What a doctor says: nouns."""

from dataclasses import dataclass
from typing import Literal

from kvsim.whatif.doctor.causes import Cure
from kvsim.whatif.doctor.effect import Effect
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.doctor.subject import DoctorSubject
from kvsim.whatif.replicates import Replicates
from kvsim.whatif.scenario_tables import Table

FindingOutcome = Literal["cause", "beside", "trade", "unsure", "harmless", "no cure", "failed"]
Rest = Literal["well", "load", "memory", "unknown"]


@dataclass(frozen=True)
class CauseFinding:
    """One suspected cause. name: of the registry; title: of its class. evidence: sentences. cure:
    the best of its cures, and effect: what that does alone (None: none was to be tried); on_top:
    what it does beside the causes before it in the list.

    outcome: `cause`, it hurts and this cures it; `beside`, its cure helps alone and nothing on top
    of those before it; `trade`, requests would end sooner and begin later, or the reverse;
    `unsure`, it may be chance; `harmless`, the evidence stands and curing it changes nothing;
    `no cure`, nothing that can be set would change it; `failed`, what was tried cannot be run, by
    `reason`.
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
    """findings: causes first, in the order in which they are cured. case: the run as it is; cured:
    the run with all causes cured (the same where there is none), of the tables `best`.

    together: all cures at once, on replicates that nothing of this has seen. rest: what is left
    with them: `well`, nothing to speak of; `load`, requests still wait, and would with any memory;
    `memory`, they still wait, and memory or sequences to spare would help; `unknown`, they still
    wait, and it cannot be told why.
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

    @property
    def causes(self) -> tuple[CauseFinding, ...]:
        """What hurts, worst first, settings before resources."""
        return tuple(each for each in self.findings if each.outcome == "cause")

    @property
    def healthy(self) -> bool:
        """Nothing hurts, and nothing is lost that no flag brings back."""
        return not self.causes and not self.incurable and self.rest == "well"

    @property
    def incurable(self) -> tuple[CauseFinding, ...]:
        """What is there, and no flag cures it."""
        return tuple(each for each in self.findings if each.outcome == "no cure")
