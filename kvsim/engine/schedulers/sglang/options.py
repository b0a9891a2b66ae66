"""The options of SGLang's scheduler, by its names."""

from collections.abc import Collection, Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from kvsim.engine.hicache.hicache import Hicache
from kvsim.engine.plan import UNBOUNDED
from kvsim.engine.policies.policies import Policies
from kvsim.engine.policies.preemption import Recompute
from kvsim.engine.policies.queue import WaitingQueue
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.schedulers.options import SchedulerOptions
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.parts import NO_HICACHE, EngineSide, HicachePart
from kvsim.engine.schedulers.sglang.prompts import PromptKnobs
from kvsim.engine.schedulers.sglang.queue import Inbox, SglangQueue
from kvsim.engine.schedulers.sglang.scheduler import SglangParts, SglangScheduler
from kvsim.memory.allocator import Allocator
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.plumbing.errors import InputError
from kvsim.sequence import Sequence

# Flags of the server that other tables have.
ELSEWHERE = {
    "page_size": 'page_size of [[allocator]] kind = "radix"',
    "disable_radix_cache": 'disable_radix_cache of [[allocator]] kind = "radix"',
    "mem_fraction_static": "mem_fraction_static of [memory]",
    "max_total_tokens": "kv_cache_tokens of [memory]",
    "context_length": "max_model_len of [model]",
    "kv_cache_dtype": "kv_cache_dtype of [model]",
    "tp_size": "tensor_parallel_size of [model]",
}


class Sglang(SchedulerOptions):
    """SGLang 0.5.23. A request without max_tokens counts with all output that its context and the
    pool allow, as in the engine. Admission counts at most 4,096 tokens of it.

    max_running_requests: most requests with KV memory; not given: 2048 to 4096, by the pool; never
        more than half the pool's tokens.
    max_prefill_tokens, chunked_prefill_size: most prompt tokens of a step, and most of one that is
        cut into chunks; -1: prompts are computed whole. (The engine chooses a default by GPU
        memory: 2048 below 20 GiB, 4096 below 60, 8192 below 160, else 16384.)
    prefill_max_requests: most prompts of a step.
    schedule_policy: "fcfs", or "lpm", longest cached prefix first.
    schedule_conservativeness: scales the share of what requests may still put out that is held
        back for them, 0.7 at first.
    enable_mixed_chunk: decoding requests run in the steps of prompts, too.
    disable_overlap_schedule: a step is scheduled when the one before it has returned.
    scheduler_recv_interval: steps of decoding between two looks at what has arrived.

    preemption_mode and victim have one value here: SGLang retracts by rules of its own.
    """

    max_running_requests: int | None = Field(None, ge=1)
    max_prefill_tokens: int = Field(16384, ge=1)
    prefill_max_requests: int | None = Field(None, ge=1)
    chunked_prefill_size: int = Field(8192, ge=-1)
    schedule_policy: Literal["fcfs", "lpm"] = "fcfs"
    schedule_conservativeness: float = Field(1.0, ge=0)
    enable_mixed_chunk: bool = False
    disable_overlap_schedule: bool = False
    scheduler_recv_interval: int = Field(1, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _server_flags_elsewhere(cls, table: Any) -> Any:
        for flag, place in ELSEWHERE.items():
            if isinstance(table, Mapping) and flag in table:
                raise ValueError(f"{flag} of SGLang's server is {place} here")
        return table

    @model_validator(mode="after")
    def _retracts_by_its_own_rules(self) -> Self:
        if self.preemption_mode != "recompute":
            raise ValueError("SGLang retracts: preemption_mode can only be recompute")
        if self.victim is not None:
            raise ValueError("SGLang retracts those with the fewest outputs: leave victim out")
        if self.chunked_prefill_size == 0:
            raise ValueError("chunked_prefill_size is at least 1, or -1 for whole prompts")
        if self.enable_mixed_chunk and self.chunked_prefill_size < 0:
            raise ValueError("enable_mixed_chunk needs chunked_prefill_size")
        return self

    @property
    def engine(self) -> str:
        return "sglang"

    @property
    def depth(self) -> int:
        return 1 if self.disable_overlap_schedule else 2

    @property
    def weighs_max_tokens(self) -> bool:
        return True

    def max_in_flight_tokens(self, depth: int) -> int | None:
        if self.chunked_prefill_size < 0:
            return None
        return depth * self.chunked_prefill_size

    def check_chunks(self, allocator: Allocator) -> None:
        """Raise InputError if chunked_prefill_size is less than a page."""
        chunk = self.chunked_prefill_size
        if 0 < chunk < allocator.page_tokens:
            raise InputError(
                "chunks end at whole pages, and one this small holds none",
                where="scheduler.chunked_prefill_size",
                value=chunk,
                limit=f"at least {allocator.page_tokens}, the allocator's page_size",
                remedy="take larger chunks, smaller pages, or -1 for whole prompts",
            )

    def knobs(self, allocator: Allocator) -> PromptKnobs:
        """The limits on the prompts of a pass; InputError as in `check_chunks`."""
        self.check_chunks(allocator)
        chunk = self.chunked_prefill_size
        return PromptKnobs(
            self.max_prefill_tokens,
            self.prefill_max_requests or UNBOUNDED,
            None if chunk < 0 else chunk,
            self.enable_mixed_chunk,
        )

    def queue(self, outside: Collection[Sequence] = ()) -> SglangQueue:
        """An empty queue; see `SglangQueue`."""
        inbox, longest = Inbox(self.scheduler_recv_interval), self.schedule_policy == "lpm"
        return SglangQueue(inbox, longest_prefix=longest, outside=outside)

    def build(self, allocator: Allocator, max_model_len: int) -> Scheduler:
        queue = self.queue()
        hicache = hicache_over(allocator)
        return self.over(allocator, max_model_len, queue, queue, EngineSide(), hicache)

    def over(
        self,
        allocator: Allocator,
        max_model_len: int,
        waiting: WaitingQueue,
        prompts: SglangQueue,
        side: EngineSide,
        hicache: HicachePart,
    ) -> SglangScheduler:
        """Build the scheduler. waiting: all waiting requests. prompts: those of them that are
        computed on this engine.
        """
        parts = SglangParts(
            allocator,
            max_model_len,
            Policies(waiting, Latest(), Recompute()),
            prompts,
            self.knobs(allocator),
            self.max_running_requests,
            self.schedule_conservativeness,
            side,
            hicache,
        )
        return SglangScheduler(parts)


def hicache_over(allocator: Allocator) -> HicachePart:
    """The hierarchical cache over `allocator`; one that does nothing if its options ask for
    none.
    """
    if isinstance(allocator, RadixAllocator) and allocator.tree.host.tokens:
        return Hicache(allocator)
    return NO_HICACHE
