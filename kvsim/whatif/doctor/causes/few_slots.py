"""All slots of llama-server are taken, or they divide the context, while cells are empty."""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL

EMPTY = ("idle", "overprovisioned", "cached")
MOST_SLOTS = 64


class FewSlots(Cause):
    """Suspected if requests spent a twentieth of their time waiting with all slots taken, and a
    quarter of the cells held no running request's tokens.
    """

    title: ClassVar[str] = "too few slots for the cells that there are"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        slots = case.option(case.scheduler, "num_slots")
        recorder = case.recorder
        waited = recorder.waiting_sum / max(1, recorder.waiting_sum + recorder.running_sum)
        if slots is None or waited < SUBSTANTIAL:
            return None
        free = sum(case.share(name) for name in EMPTY)
        if int(case.series["num_running"].max()) < slots or free < 0.25:
            return None
        unified = case.option(case.scheduler, "unified")
        each = (
            "share one buffer" if unified else f"have {case.capacity_tokens // slots:,} cells each"
        )
        most, when = case.longest_queue()
        evidence = (
            f"requests spent {100 * waited:.0f} % of their time waiting; up to {most:,} waited, "
            f"{when:,.0f} s into the run, for {slots} slots, which {each}",
            f"{100 * free:.0f} % of the cells held no token of a running request",
        )
        return Suspicion(
            evidence,
            tuple(
                Cure(
                    {"scheduler.n_parallel": more, "scheduler.kv_unified": True},
                    f"-np {more} -kvu of llama-server",
                    "each request may then fill the whole context, and all fail if the sum does",
                )
                for more in (2 * slots, 4 * slots)
                if more <= MOST_SLOTS
            ),
        )
