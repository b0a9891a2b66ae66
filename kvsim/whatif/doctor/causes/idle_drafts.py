"""Speculative decoding with drafts that cost more than they save."""

from typing import ClassVar

from kvsim.plumbing.units import GIB
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun

# Of the drafts. Verifying costs little where steps read weights, so even few right ones may pay:
# whether they do is what the run without them says. Where most are right nobody need ask.
FEW = 0.5


class IdleDrafts(Cause):
    """Suspected if less than half of the draft tokens were accepted."""

    title: ClassVar[str] = "drafts that cost more than they save"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        found = case.summary.speculation
        if found is None or found.acceptance_rate is None or found.acceptance_rate >= FEW:
            return None
        config, drafter = case.simulation.scenario.speculative_config, case.simulation.drafter
        assert config is not None  # what drafted was asked to
        evidence = [
            f"of {found.draft_tokens:,} tokens drafted {100 * found.acceptance_rate:.0f} % "
            f"were accepted: a step puts out {found.mean_acceptance_length:.2f} tokens of each "
            f"sequence for {config.num_speculative_tokens} drafted"
        ]
        if drafter is not None:
            tp = case.simulation.scenario.model.tensor_parallel_size
            size = drafter.weight_bytes(case.simulation.model, tp)
            evidence.append(f"the drafter takes {size / GIB:.1f} GiB beside the pool")
        cures = [Cure({"speculative_config": None}, "no --speculative-config")]
        if config.num_speculative_tokens > 1 and config.acceptance_rate is not None:
            changes = {"speculative_config.num_speculative_tokens": 1}
            cures.insert(0, Cure(changes, '--speculative-config with "num_speculative_tokens": 1'))
        return Suspicion(tuple(evidence), tuple(cures))
