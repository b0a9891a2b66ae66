"""A window cache of llama-server that keeps every token."""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class FullWindows(Cause):
    """Suspected if `swa_full` uses a twentieth of the pool for tokens outside the windows of their
    layers.
    """

    title: ClassVar[str] = "a window cache of full size"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        if case.slots is None or not case.option(case.allocator, "swa_full"):
            return None
        memory = case.summary.memory
        capacity = memory.capacity_tokens * case.simulation.layout.bytes_per_token
        share = case.slots.behind_windows_bytes / capacity
        if share < SUBSTANTIAL:
            return None
        evidence = (
            f"{100 * share:.0f} % of the pool held tokens behind the windows of their layers, to "
            "which no later token attends",
        )
        cure = Cure(
            {"allocator.0.swa_full": None},
            "llama-server without --swa-full",
            "without it, a prompt that parts from what a slot holds goes on from a checkpoint, and "
            "context shift and cache reuse are off",
        )
        return Suspicion(evidence, (cure,))
