"""The options of SGLang's schedulers where prompts are computed here and decoded there."""

from typing import Self

from pydantic import Field, model_validator

from kvsim.engine.plan import UNBOUNDED
from kvsim.engine.policies.policies import Policies
from kvsim.engine.policies.preemption import Recompute
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.schedulers.sglang.options import Sglang
from kvsim.engine.schedulers.sglang.queue import Inbox
from kvsim.engine.schedulers.sglang_pd.decode import SglangDecodeScheduler
from kvsim.engine.schedulers.sglang_pd.prefill import PrefillQueue, SglangPrefillScheduler
from kvsim.engine.schedulers.sglang_pd.queue import DecodeQueue
from kvsim.memory.allocator import Allocator
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.plumbing.errors import InputError


class SglangSide(Sglang):
    """The common options of prefill and decode engines: no batch mixes prompts with decoding, and
    every pass reads all messages that have arrived.
    """

    @model_validator(mode="after")
    def _runs_on_one_side(self) -> Self:
        if self.enable_mixed_chunk:
            raise ValueError(
                "enable_mixed_chunk changes nothing between prefill and decode engines"
            )
        if self.scheduler_recv_interval != 1:
            raise ValueError("scheduler_recv_interval is 1 of prefill and decode engines")
        return self


def _pages(allocator: Allocator) -> RadixAllocator:
    if isinstance(allocator, RadixAllocator):
        return allocator
    raise InputError(
        "SGLang sends pages of its radix cache from one engine to another",
        where="allocator.kind",
        remedy='kind = "radix"',
    )


class SglangPrefill(SglangSide):
    """SGLang 0.5.23 with --disaggregation-mode prefill."""

    def build(self, allocator: Allocator, max_model_len: int) -> SglangPrefillScheduler:
        queue = PrefillQueue(Inbox(1), longest_prefix=self.schedule_policy == "lpm")
        chunk = self.chunked_prefill_size
        self.check_chunks(allocator)
        return SglangPrefillScheduler(
            _pages(allocator),
            max_model_len,
            Policies(queue, Latest(), Recompute()),
            queue,
            max_running_requests=self.max_running_requests,
            max_prefill_tokens=self.max_prefill_tokens,
            prefill_max_requests=self.prefill_max_requests or UNBOUNDED,
            chunked_prefill_size=None if chunk < 0 else chunk,
            conservativeness=self.schedule_conservativeness,
            overlaps=self.depth > 1,
        )


class SglangDecode(SglangSide):
    """SGLang 0.5.23 with --disaggregation-mode decode.

    num_reserved_decode_tokens: held back for the outputs of each request, whatever it asks for.
    retraction_host_ratio: tokens of host memory for retracted requests, as a share of the pool
    (--hicache-ratio); a request that finds none ends with an error. None: 0.2, and enough for one
    of the longest. A prefix cache on the decode engine has no such limit.
    """

    num_reserved_decode_tokens: int = Field(512, ge=0)
    retraction_host_ratio: float | None = Field(None, gt=0)

    def max_in_flight_tokens(self, depth: int) -> int | None:
        return None

    def build(self, allocator: Allocator, max_model_len: int) -> SglangDecodeScheduler:
        queue = DecodeQueue()
        return SglangDecodeScheduler(
            _pages(allocator),
            max_model_len,
            Policies(queue, Latest(), Recompute()),
            queue,
            max_running_requests=self.max_running_requests,
            num_reserved_decode_tokens=self.num_reserved_decode_tokens,
            retraction_host_ratio=self.retraction_host_ratio,
            conservativeness=self.schedule_conservativeness,
            overlaps=self.depth > 1,
        )
