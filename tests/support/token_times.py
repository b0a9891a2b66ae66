"""When each token came and what each step computed, followed one by one: what the books add up must
be these.
"""

from itertools import pairwise

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.sequence import Sequence


class TokenTimes(Observer):
    """Of a run with max_steps = 1. times_ps: of each sequence, when its outputs returned (all that
    one step of it put out count once). slots: that hold what it computed or found, so far.
    """

    def __init__(self) -> None:
        self.times_ps: dict[Sequence, list[int]] = {}
        self.slots: dict[Sequence, int] = {}
        self.wrong: list[str] = []  # what the engine said of a step and did not do
        self._decoding: list[Sequence] = []
        self._on_their_way: dict[Plan, list[Sequence]] = {}

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        self._decoding = [seq for seq in scheduler.running if seq.decoding]

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        for seq in plan.lost:
            next(reversed(self._on_their_way.values())).remove(seq)
        out = {*plan.preempted, *plan.passed_over, *(chunk.seq for chunk in plan.chunks)}
        out |= {seq for seq in self._decoding if seq not in scheduler.running}  # failed
        decoded = [seq for seq in self._decoding if seq not in out] if plan.num_decode else []
        if len(decoded) != plan.num_decode:
            self.wrong.append(f"{plan.num_decode} decode at {now_ps}, and not {len(decoded)}")
        for seq, cached_tokens, _ in plan.admitted:
            self.slots[seq] = cached_tokens
        for seq in decoded:
            self.slots[seq] += 1
        for chunk in plan.chunks:
            if self.slots[chunk.seq] != chunk.start_tokens:
                self.wrong.append(f"{chunk.seq} goes on from {chunk.start_tokens} at {now_ps}")
            self.slots[chunk.seq] = chunk.end_tokens
        sampled = [chunk.seq for chunk in plan.chunks if chunk.samples]
        if not plan.empty:
            self._on_their_way[plan] = decoded + sampled

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        for seq in self._on_their_way.pop(plan, ()):
            self.times_ps.setdefault(seq, []).append(now_ps)
        for seq in plan.finishing:
            more = self.slots[seq] - seq.final_tokens  # SGLang computes what nobody asks for
            if not 0 <= more <= scheduler.allocator.keeps_last_token:
                self.wrong.append(f"{seq} leaves with {self.slots[seq]} slots")

    def gaps_ps(self) -> list[int]:
        """Between one token of a sequence and its next, in order of length."""
        times = self.times_ps.values()
        return sorted(after - before for each in times for before, after in pairwise(each))
