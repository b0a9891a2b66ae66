"""Buffers in one piece: memory lost between them and within them."""

from typing import ClassVar

from kvsim.memory.options import WASTE
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class Fragmentation(Cause):
    """Suspected without blocks if memory is the bottleneck and a twentieth of the pool was in
    holes, in unused buffer ends or in copies.
    """

    title: ClassVar[str] = "memory lost in and between buffers of one piece"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        if hasattr(case.allocator, "block_size") or not case.memory_binds:
            return None
        if hasattr(case.scheduler, "num_slots"):
            return None  # slots, which have a cause of their own, run over no blocks
        lost = {name: case.share(name) for name in WASTE if case.share(name)}
        if sum(lost.values()) < SUBSTANTIAL:
            return None
        shares = ", ".join(f"{100 * share:.0f} % {name}" for name, share in lost.items())
        evidence = [f"of the pool {shares}; {100 * case.share('used'):.0f} % was in use"]
        if case.waits.holes >= SUBSTANTIAL:
            evidence.append(
                f"requests spent {100 * case.waits.holes:.0f} % of their time waiting for a large "
                "enough gap, while the pool had as many free bytes"
            )
        entry = {"kind": "paged"}
        cure = Cure({"allocator.0": entry}, "vllm serve, whose memory is blocks")
        return Suspicion(tuple(evidence), (cure,))
