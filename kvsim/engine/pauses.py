"""Whose tokens stop coming, since when, and whose come again: a gap of theirs is no step's length.

A step may pass over some members of the decode batch, or all of them. All of them are one count and
one time; who joins the batch later and is passed over too is kept apart.
"""

from kvsim.engine.plan import PausedBatch, Plan
from kvsim.sequence import Sequence


class Pauses:
    """Sequences of one engine that wait for their next token longer than a step."""

    def __init__(self) -> None:
        self._preempted: dict[Sequence, int] = {}  # with the time of their last token
        self._passed_over: dict[Sequence, int] = {}  # likewise
        self._batch: PausedBatch | None = None  # likewise, all at once
        self._newcomers: list[Sequence] = []  # whose tokens began in the last step passing over all

    def planned(self, plan: Plan, token_ps: int) -> None:
        """Whose tokens stop coming with this plan, the last at `token_ps`, and whose come again."""
        for seq in plan.preempted:
            if seq.num_outputs and seq not in self._preempted:
                since_ps = self._end(seq, token_ps)
                self._preempted[seq] = plan.lost.get(seq, since_ps)
        if plan.num_paused:
            self._pause_batch(plan, token_ps)
        elif plan.passed_over or self._passed_over or self._batch is not None:
            self._go_on(plan, token_ps)
        if self._preempted:
            for chunk in plan.chunks:
                if chunk.samples and chunk.seq in self._preempted:
                    plan.late[chunk.seq] = self._preempted.pop(chunk.seq)

    def _end(self, seq: Sequence, token_ps: int) -> int:
        """`seq` is preempted; returns when its last token came."""
        batch = self._batch
        if batch is not None and seq not in batch.apart and seq not in self._newcomers:
            batch.num -= 1
            return batch.since_ps
        return self._passed_over.pop(seq, token_ps)

    def _pause_batch(self, plan: Plan, token_ps: int) -> None:
        """Nobody in the batch takes a token."""
        if self._batch is None:
            apart = set(self._passed_over)
            self._batch = PausedBatch(token_ps, plan.num_paused - len(apart), apart)
        else:
            joined = (seq for seq in self._newcomers if seq.decoding)
            self._passed_over.update(dict.fromkeys(joined, token_ps))
            self._batch.apart.update(self._newcomers)
        self._newcomers = [chunk.seq for chunk in plan.chunks if chunk.samples]

    def _go_on(self, plan: Plan, token_ps: int) -> None:
        """Some in the batch, or all, take a token."""
        if self._batch is not None:
            self._batch.apart.update(self._newcomers)
            plan.late_batch, self._batch = self._batch, None
            plan.num_late += plan.late_batch.num
        before, now = self._passed_over, dict.fromkeys(plan.passed_over, token_ps)
        for seq, since_ps in before.items():
            if seq in now:
                now[seq] = since_ps
            else:
                plan.late[seq] = since_ps
                plan.num_late += 1
        self._passed_over = now
