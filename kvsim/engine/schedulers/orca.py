"""Iteration-level scheduling as in Orca (Yu et al., OSDI 2022), in the form of the baselines of the
PagedAttention paper (Kwon et al., SOSP 2023).

Whole prompts join the running batch at any step. When a sequence is admitted, the most memory that
it may need is reserved.

The allocator decides that amount: `max-buffer` by its estimates, in buddy blocks as in those
baselines. Such a sequence is never preempted. With an allocator under which sequences grow, the
last admitted one is preempted if memory runs out.
"""

from pydantic import Field

from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.options import SchedulerOptions
from kvsim.engine.schedulers.whole_prompts import StepLimits, WholePromptScheduler
from kvsim.memory.allocator import Allocator


class Orca(SchedulerOptions):
    """max_num_seqs: most sequences running. max_num_batched_tokens: most tokens a step computes,
    one for each decoding sequence and all of each new prompt.
    """

    max_num_seqs: int = Field(256, ge=1)
    max_num_batched_tokens: int = Field(2560, ge=1)

    def make(
        self, allocator: Allocator, max_model_len: int, policies: Policies
    ) -> WholePromptScheduler:
        limits = StepLimits(self.max_num_seqs, self.max_num_batched_tokens)
        return WholePromptScheduler(allocator, max_model_len, policies, limits)
