"""Requests are admitted when their first chunk fits, and then preempt each other before their
prompts are computed.
"""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class ChunkedAdmission(Cause):
    """Suspected if a twentieth of all tokens was recomputed, most victims had no output yet, and
    the scheduler admits a prompt by its first chunk.
    """

    title: ClassVar[str] = "requests begun before their whole prompt fits"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        scheduler = case.scheduler
        if not hasattr(scheduler, "scheduler_reserve_full_isl"):
            return None
        whole = scheduler.scheduler_reserve_full_isl
        old = case.option(scheduler, "semantics") == "vllm-0.11"
        if (whole is not False and not old) or case.recomputed_share < SUBSTANTIAL:
            return None
        early = case.preempted_in_prompt
        if 2 * early < len(case.preempted):
            return None
        evidence = (
            f"{early:,} of {len(case.preempted):,} preemptions were of sequences still reading "
            f"their prompt; {100 * case.recomputed_share:.0f} % of all tokens computed had been "
            "computed before",
        )
        if old:
            changes = {"scheduler.semantics": None, "scheduler.scheduler_reserve_full_isl": True}
            return Suspicion(
                evidence, (Cure(changes, "vLLM 0.19 or later, which looks by itself"),)
            )
        changes = {"scheduler.scheduler_reserve_full_isl": True}
        return Suspicion(evidence, (Cure(changes, "--scheduler-reserve-full-isl"),))
