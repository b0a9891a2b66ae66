"""Settings of a recorded SGLang engine."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import Field

from evidence.schedule.case import MOST_TOKENS
from evidence.schedule.sglang.request import LARGEST_POOL
from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.schedulers.sglang.options import Sglang
from kvsim.engine.schedulers.sglang.policies import PolicyName
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.radix.options import Radix
from kvsim.plumbing.options import Options


class PoolBeside(NamedTuple):
    """A second pool next to the pool of pages: its layers, its bytes, and the allocator's flags for
    it.

    alone: whether no layer stores KV in the pages.
    """

    groups: tuple[KVGroup, ...] = ()
    capacity_bytes: int = 0
    window_tokens: int | None = None
    flags: Mapping[str, Any] = {}
    alone: bool = False


class SglangEngine(Options):
    """Settings of the recorded engine.

    max_total_tokens: tokens in the pool, without its padding page. chunked_prefill_size: -1 for no
    chunking.
    """

    max_total_tokens: int = Field(ge=1, le=LARGEST_POOL)
    page_size: int = Field(1, ge=1, le=MOST_TOKENS)
    max_running_requests: int | None = Field(None, ge=1)
    max_prefill_tokens: int = Field(16384, ge=1)
    chunked_prefill_size: int = Field(8192, ge=-1)
    schedule_policy: PolicyName = "fcfs"
    priority_scheduling: bool = False
    low_priority_values_first: bool = False
    preemption_threshold: int | None = Field(None, ge=0)
    priority_preemption: bool = True
    radix_cache: bool = True
    schedule_conservativeness: float = Field(1.0, ge=0)
    mixed_chunk: bool = False
    overlap: bool = True
    context_length: int = Field(ge=2, le=MOST_TOKENS)

    @property
    def may_preempt(self) -> bool:
        """Whether the rows of this engine list requests retracted for more urgent ones."""
        return self.priority_scheduling or self.schedule_policy not in ("fcfs", "lpm")

    @property
    def second_pool(self) -> PoolBeside:
        """The second pool next to the pages."""
        return PoolBeside()

    def replica_spec(self) -> ReplicaSpec:
        """The engine with these settings, one step at a time; a token is one byte."""
        second = self.second_pool
        pages = () if second.alone else (KVGroup("full", 1, 1),)
        return ReplicaSpec(
            Radix.parse(
                {
                    "page_size": self.page_size,
                    "disable_radix_cache": not self.radix_cache,
                    **second.flags,
                },
                "engine",
            ),
            Sglang.parse(
                {
                    "max_running_requests": self.max_running_requests,
                    "max_prefill_tokens": self.max_prefill_tokens,
                    "chunked_prefill_size": self.chunked_prefill_size,
                    "schedule_policy": self.schedule_policy,
                    "enable_priority_scheduling": self.priority_scheduling,
                    "schedule_low_priority_values_first": self.low_priority_values_first,
                    "priority_scheduling_preemption_threshold": self.preemption_threshold,
                    "disable_priority_preemption": not self.priority_preemption,
                    "schedule_conservativeness": self.schedule_conservativeness,
                    "enable_mixed_chunk": self.mixed_chunk,
                    "disable_overlap_schedule": not self.overlap,
                },
                "engine",
            ),
            capacity_bytes=len(pages) * self.max_total_tokens + second.capacity_bytes,
            layout=KVLayout((*pages, *second.groups)),
            pool_tokens=self.max_total_tokens if second.alone else None,
            window_tokens=second.window_tokens,
            max_model_len=self.context_length,
            copy_bytes_per_s=1,
            host_bytes_per_s=1,
            max_steps=1,
        )
