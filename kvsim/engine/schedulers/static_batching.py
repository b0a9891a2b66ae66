"""Static batching of whole requests, as in FasterTransformer.

A batch forms when the engine is empty, and its members leave together, when the last of them is
done.

A member that is done holds its slot and its memory until then and computes nothing more. Its output
is returned with the batch's. If a sequence of a growing allocator finds no memory, members that are
done free theirs early. If that is not enough, the last unfinished member is preempted.
"""

from pydantic import Field

from kvsim.engine.plan import Plan
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.options import SchedulerOptions
from kvsim.engine.schedulers.whole_prompts import StepLimits, WholePromptScheduler
from kvsim.memory.allocator import Allocator
from kvsim.sequence import Sequence


class StaticBatching(SchedulerOptions):
    """max_num_seqs: most members of a batch; memory may admit fewer."""

    max_num_seqs: int = Field(256, ge=1)

    def make(
        self, allocator: Allocator, max_model_len: int, policies: Policies
    ) -> "StaticScheduler":
        limits = StepLimits(self.max_num_seqs)
        return StaticScheduler(allocator, max_model_len, policies, limits)


class StaticScheduler(WholePromptScheduler):
    """Runs one batch after the other; see the module."""

    def __init__(
        self,
        allocator: Allocator,
        max_model_len: int,
        policies: Policies,
        limits: StepLimits,
    ) -> None:
        super().__init__(allocator, max_model_len, policies, limits)
        self._done: list[Sequence] = []  # members without further output
        self._holding: list[Sequence] = []  # those of them that still hold memory

    def schedule(self) -> Plan:
        plan = Plan()
        if self.batch.num:
            self._decode(plan)
        else:
            self._admit(plan, self._max_num_batched_tokens)
        return self._close(plan)

    def _give_up_finished(self) -> bool:
        if not self._holding:
            return False
        self.allocator.release(self._holding.pop())
        return True

    def finish(self, plan: Plan) -> list[Sequence]:
        for seq in plan.finishing:
            seq.finished = True
        self._done += plan.finishing
        self._holding += plan.finishing
        if self.batch.num:
            return []
        done = sorted(self._done, key=lambda seq: seq.order)
        for seq in done:
            del self.running[seq]
        while self._give_up_finished():
            pass
        self._done.clear()
        return done
