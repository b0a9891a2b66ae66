"""The options of SGLang's scheduler, by its names."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from kvsim.engine.hicache.hicache import Hicache
from kvsim.engine.plan import UNBOUNDED
from kvsim.engine.policies.policies import Policies
from kvsim.engine.policies.preemption import Recompute
from kvsim.engine.policies.queue import Order, WaitingQueue
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.schedulers.options import SchedulerOptions
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.parts import NO_HICACHE, EngineSide, HicachePart
from kvsim.engine.schedulers.sglang.policies import SCHEDULE_POLICIES, PolicyName, policy_of
from kvsim.engine.schedulers.sglang.priorities import (
    NO_PRIORITIES,
    PREEMPTION_THRESHOLD,
    PriorityRule,
)
from kvsim.engine.schedulers.sglang.prompts import PromptKnobs
from kvsim.engine.schedulers.sglang.queue import Inbox, SglangQueue
from kvsim.engine.schedulers.sglang.scheduler import SglangParts, SglangScheduler
from kvsim.engine.speculation.verifier import Verifier
from kvsim.memory.allocator import Allocator
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.plumbing.errors import InputError
from kvsim.sequence import Sequence
from kvsim.support.parts import STAGES

if TYPE_CHECKING:
    from kvsim.engine.connectors.connector import Connector

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
_OF_PRIORITIES = (
    *("schedule_low_priority_values_first", "disable_priority_preemption"),
    "priority_scheduling_preemption_threshold",
)


class Sglang(SchedulerOptions):
    """SGLang 0.5.23. A request without max_tokens counts with the longest output that its context
    and the pool allow, as in the engine. Admission counts at most 4,096 output tokens.

    max_running_requests: most requests with KV memory; not given: 2048 to 4096, by the pool; never
        more than half the pool's tokens.
    max_prefill_tokens, chunked_prefill_size: most prompt tokens of a step, and most of one that is
        cut into chunks; -1: prompts are computed whole. (The engine chooses a default by GPU
        memory: 2048 below 20 GiB, 4096 below 60, 8192 below 160, else 16384.)
    prefill_max_requests: most prompts of a step.
    schedule_policy: order in which a pass tries waiting requests (`scheduler.schedule_policy`).
    enable_priority_scheduling: the most urgent requests first, under fcfs and lof. If
        max_running_requests are running, one of them is retracted for a more urgent request.
    schedule_low_priority_values_first: smaller values of priority are more urgent, not larger ones.
    priority_scheduling_preemption_threshold: a request is retracted only for one that is more
        urgent by more than this; 10 unless given. disable_priority_preemption: running requests
        are never retracted for more urgent ones.
    schedule_conservativeness: scales the share of what requests may still put out that is held
        back for them, 0.7 at first.
    enable_mixed_chunk: steps with prompts also decode.
    disable_overlap_schedule: a step is scheduled when the one before it has returned.
    scheduler_recv_interval: steps of decoding between two looks at what has arrived.
    pp_max_micro_batch_size: most requests of one micro-batch; there are as many micro-batches as
        pipeline stages. Not given: max_running_requests / stages.

    preemption_mode and victim have one value here: SGLang retracts by rules of its own.
    """

    max_running_requests: int | None = Field(None, ge=1)
    max_prefill_tokens: int = Field(16384, ge=1)
    prefill_max_requests: int | None = Field(None, ge=1)
    chunked_prefill_size: int = Field(8192, ge=-1)
    schedule_policy: PolicyName = "fcfs"
    enable_priority_scheduling: bool = False
    schedule_low_priority_values_first: bool = False
    priority_scheduling_preemption_threshold: int | None = Field(None, ge=0)
    disable_priority_preemption: bool = False
    schedule_conservativeness: float = Field(1.0, ge=0)
    enable_mixed_chunk: bool = False
    disable_overlap_schedule: bool = False
    scheduler_recv_interval: int = Field(1, ge=1)
    pp_max_micro_batch_size: int | None = Field(None, ge=1)

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

    @model_validator(mode="after")
    def _priorities_under_two_policies(self) -> Self:
        """Refuse priorities under a policy other than fcfs and lof, as SGLang does
        (arg_groups/validation_hook.py).
        """
        if self.enable_priority_scheduling:
            if not SCHEDULE_POLICIES.get(self.schedule_policy).by_priority:
                raise ValueError("SGLang has enable_priority_scheduling under fcfs and lof alone")
            if not (self.disable_priority_preemption and self._threshold_given):
                return self
            key = "priority_scheduling_preemption_threshold"
            raise ValueError(f"{key} changes nothing with disable_priority_preemption")
        for key in _OF_PRIORITIES:
            value = getattr(self, key)
            if value is not None and value is not False:  # a threshold of 0 is one
                raise ValueError(f"{key} changes nothing unless enable_priority_scheduling = true")
        return self

    @property
    def _threshold_given(self) -> bool:
        return self.priority_scheduling_preemption_threshold is not None

    @property
    def priorities(self) -> PriorityRule:
        """The rule for request priorities."""
        if not self.enable_priority_scheduling:
            return NO_PRIORITIES
        threshold = self.priority_scheduling_preemption_threshold
        if threshold is None:
            threshold = PREEMPTION_THRESHOLD
        return PriorityRule(
            1 if self.schedule_low_priority_values_first else -1,
            None if self.disable_priority_preemption else threshold,
        )

    @property
    def order(self) -> Order:
        return "priority" if self.enable_priority_scheduling else "fcfs"

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

    def queue(self, allocator: Allocator, outside: Collection[Sequence] = ()) -> SglangQueue:
        """An empty queue; see `SglangQueue`. InputError as in `policy_of`."""
        policy = policy_of(self.schedule_policy, cached=allocator.keeps_prefixes)
        return SglangQueue(Inbox(self.scheduler_recv_interval), policy, self.priorities, outside)

    def build(self, allocator: Allocator, max_model_len: int) -> Scheduler:
        queue = self.queue(allocator)
        hicache = hicache_over(allocator)
        return self.over(allocator, max_model_len, queue, queue, EngineSide(), hicache)

    @property
    def serves(self) -> frozenset[str]:
        return frozenset((STAGES,))

    def depth_over(self, stages: int) -> int:
        """1 over several stages, where SGLang turns its overlap schedule off."""
        return self.depth if stages == 1 else 1

    def holding(
        self,
        allocator: Allocator,
        max_model_len: int,
        *,
        connector: "Connector | None" = None,
        verifier: Verifier | None = None,
        stages: int = 1,
    ) -> Scheduler:
        queue, side = self.queue(allocator), EngineSide(looks_ahead=False)
        return self.over(allocator, max_model_len, queue, queue, side, NO_HICACHE, stages=stages)

    def over(
        self,
        allocator: Allocator,
        max_model_len: int,
        waiting: WaitingQueue,
        prompts: SglangQueue,
        side: EngineSide,
        hicache: HicachePart,
        *,
        stages: int = 1,
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
            stages,
            self.pp_max_micro_batch_size,
        )
        return SglangScheduler(parts)


def hicache_over(allocator: Allocator) -> HicachePart:
    """The hierarchical cache over `allocator`; one that does nothing if its options ask for
    none.
    """
    if isinstance(allocator, RadixAllocator) and allocator.tree.host.tokens:
        return Hicache(allocator)
    return NO_HICACHE
