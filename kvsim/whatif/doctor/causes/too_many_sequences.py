"""More sequences are admitted than the pool can hold until they finish, so that they preempt each
other.
"""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class TooManySequences(Cause):
    """Suspected if a twentieth of all tokens was recomputed, and most preempted sequences were
    decoding: they fitted at admission, and grew.
    """

    title: ClassVar[str] = "more sequences let in than the pool holds to their ends"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        limit = case.option(case.scheduler, "max_num_seqs")
        grown = len(case.preempted) - case.preempted_in_prompt
        if limit is None or not case.capacity_tokens or case.recomputed_share < SUBSTANTIAL:
            return None
        if 2 * grown < len(case.preempted):
            return None
        done = case.recorder.finished
        final = sum(seq.final_tokens for seq in done) / len(done)
        # Sequences of all ages are half as long as at their end: twice as many fit as at their full
        # length, more while the queue holds short ones, and fewer are sure to.
        held = max(1, int(case.capacity_tokens / final))
        peak = int(case.series["num_running"].max())
        tried = [value for value in (3 * held, 2 * held, held) if value < min(limit, peak)]
        if not tried:
            return None
        evidence = (
            f"{grown:,} preemptions of sequences that had begun to answer; "
            f"{100 * case.recomputed_share:.0f} % of all tokens computed had been computed before",
            f"up to {peak:,} ran at once under max_num_seqs = {limit:,}, and the pool of "
            f"{case.capacity_tokens:,} tokens holds {held:,} of the mean final length, "
            f"{final:,.0f}",
        )
        return Suspicion(
            evidence,
            tuple(
                Cure({"scheduler.max_num_seqs": value}, f"--max-num-seqs {value}")
                for value in tried
            ),
        )
