"""Requests wait because of max_num_seqs while there is memory."""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class TooFewSequences(Cause):
    """Suspected where requests spent a twentieth of their time queueing at the limit."""

    title: ClassVar[str] = "a limit on sequences that holds the queue back"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        limit = case.option(case.scheduler, "max_num_seqs")
        waited = case.waits.limit
        if limit is None or waited < SUBSTANTIAL:
            return None
        most, when = case.longest_queue()
        peak = case.summary.memory.peak_allocated
        evidence = (
            f"requests spent {100 * waited:.0f} % of their time waiting while max_num_seqs = "
            f"{limit:,} ran; up to {most:,} waited, {when:,.0f} s into the run",
            f"at its fullest the pool was {100 * peak:.0f} % taken",
        )
        tried = dict.fromkeys((2 * limit, 4 * limit, 16 * limit))
        return Suspicion(
            evidence,
            tuple(
                Cure({"scheduler.max_num_seqs": value}, f"--max-num-seqs {value}")
                for value in tried
            ),
        )
