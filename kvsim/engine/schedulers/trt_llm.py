"""TensorRT-LLM's in-flight batching with its two capacity policies (cpp/tensorrt_llm/
batch_manager/capacityScheduler.cpp): decoders and whole new prompts share every step.

guaranteed-no-evict  a request starts only if it, and all that run, can reach the output they
                     declared: no request is ever paused
max-utilization      a request starts if its prompt and one more token fit; when a decoder finds no
                     room, the last that started is paused, and computes again later

A request that declares no max_tokens counts with the model's maximum length. Free memory is
counted in slots, as for blocks: a contiguous buffer that has to move may still find no place, and
pause one.
"""

from typing import Literal

from pydantic import Field

from kvsim.engine.plan import Plan
from kvsim.engine.policies.policies import Policies
from kvsim.engine.schedulers.options import SchedulerOptions
from kvsim.engine.schedulers.whole_prompts import StepLimits, WholePromptScheduler
from kvsim.memory.allocator import Allocator, Refusal
from kvsim.request import Request
from kvsim.sequence import Sequence


class TrtLlm(SchedulerOptions):
    """capacity_scheduler_policy: when a request may start. max_num_seqs: most sequences running.
    max_num_batched_tokens: most tokens a step computes, one for each decoding sequence and all of
    each new prompt.
    """

    capacity_scheduler_policy: Literal["guaranteed-no-evict", "max-utilization"] = (
        "guaranteed-no-evict"
    )
    max_num_seqs: int = Field(2048, ge=1)
    max_num_batched_tokens: int = Field(8192, ge=1)

    @property
    def weighs_max_tokens(self) -> bool:
        return self.capacity_scheduler_policy == "guaranteed-no-evict"

    def make(
        self, allocator: Allocator, max_model_len: int, policies: Policies
    ) -> "TrtLlmScheduler":
        limits = StepLimits(self.max_num_seqs, self.max_num_batched_tokens)
        no_evict = self.capacity_scheduler_policy == "guaranteed-no-evict"
        return TrtLlmScheduler(allocator, max_model_len, policies, limits, no_evict=no_evict)


class TrtLlmScheduler(WholePromptScheduler):
    """Runs all decoding sequences in every step, with the prompts that the policy lets start."""

    def __init__(
        self,
        allocator: Allocator,
        max_model_len: int,
        policies: Policies,
        limits: StepLimits,
        *,
        no_evict: bool,
    ) -> None:
        super().__init__(allocator, max_model_len, policies, limits)
        self._no_evict = no_evict

    def refusal(self, request: Request) -> Refusal | None:
        """Why `request` can never run; None if it can.

        Under guaranteed-no-evict also if its declared maximum exceeds the pool, or is less than its
        output.
        """
        if self._no_evict:
            declared = self._declared_slots(request) - request.prompt_tokens + 1
            if declared < request.output_tokens:
                return Refusal(
                    "its output is longer than the maximum it declared",
                    request.output_tokens,
                    declared,
                    "tokens",
                    "clip the output, raise max_tokens or take max-utilization",
                )
            refusal = self.allocator.refusal(request._replace(output_tokens=declared))
            if refusal is not None:
                return refusal
        return super().refusal(request)

    def repeatable(self, plan: Plan, limit: int) -> int:
        """Number of further steps equal to `plan`; 0 if a request waits and windows free blocks
        while decoding.

        The memory that running requests still need then shrinks faster than the free memory. So the
        head of the queue may start in any step.
        """
        if self._no_evict and self.waiting and self.allocator.gives_back:
            return 0
        return super().repeatable(plan, limit)

    def _declared_slots(self, request: Request) -> int:
        longest = self.max_model_len - 1  # the last token sampled takes no slot
        if request.max_tokens is None:
            return longest
        return min(request.prompt_tokens + request.max_tokens - 1, longest)

    def _fit_tokens(self, seq: Sequence) -> int:
        if not self._no_evict:
            return min(seq.num_tokens + 1, seq.final_tokens)
        missing = self.allocator.missing_tokens
        return missing(seq, self._declared_slots(seq.request)) + sum(
            missing(other, self._declared_slots(other.request)) for other in self.running
        )
