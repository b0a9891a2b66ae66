"""vLLM v0's scheduler, as in the artifact of the PagedAttention paper (Kwon et al., SOSP 2023).

A step either computes new prompts or decodes, prompts first. If memory runs out the last admitted
sequence is preempted and recomputed.

The paged allocator has its rules about blocks, `kvsim.vllm.rules`: a watermark for every admission,
one free block for every decoding sequence, no null block.
"""

from pydantic import Field

from kvsim.engine.plan import Plan
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.options import SchedulerOptions
from kvsim.engine.schedulers.whole_prompts import StepLimits, WholePromptScheduler
from kvsim.memory.allocator import Allocator
from kvsim.vllm.rules import BlockRules
from kvsim.vllm.versions import V0


class VllmV0(SchedulerOptions):
    """max_num_seqs: most sequences running. max_num_batched_tokens: most prompt tokens a step
    computes.
    """

    max_num_seqs: int = Field(2048, ge=1)
    max_num_batched_tokens: int = Field(2560, ge=1)

    @property
    def block_rules(self) -> BlockRules:
        return V0.blocks

    @property
    def engine(self) -> str:
        return "vllm"

    @property
    def engine_version(self) -> str:
        return V0.name

    def make(
        self, allocator: Allocator, max_model_len: int, policies: Policies
    ) -> "VllmV0Scheduler":
        limits = StepLimits(self.max_num_seqs, self.max_num_batched_tokens)
        return VllmV0Scheduler(allocator, max_model_len, policies, limits)


class VllmV0Scheduler(WholePromptScheduler):
    """Schedules prompts while any fit; decoding sequences pause meanwhile."""

    def schedule(self) -> Plan:
        plan = Plan()
        if self._head_is_swapped():  # it decodes with the others, and no prompt starts before
            self._decode(plan)
            if not plan.preempted:
                self._admit(plan, self._max_num_batched_tokens, only_swapped=True)
            return self._close(plan)
        decoders = [seq for seq in self.running if seq.decoding] if self.waiting else []
        self._admit(plan, self._max_num_batched_tokens)
        if plan.chunks:
            plan.passed_over = decoders
        else:
            self._decode(plan)
        return self._close(plan)
