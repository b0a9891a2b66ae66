"""Options that every scheduler has, and properties of each kind that the engine asks for."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from kvsim.engine.policies.policies import Policies
from kvsim.engine.policies.preemption import Preemption, Recompute, Swap
from kvsim.engine.policies.queue import Order, queue_of
from kvsim.engine.policies.victims import VICTIMS
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.policies.victims.lowest_priority import LowestPriority
from kvsim.engine.policies.victims.victim import Victim
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.speculation.verifier import Verifier
from kvsim.memory.allocator import Allocator
from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import GIB
from kvsim.speculation import Speculation
from kvsim.vllm.rules import BlockRules
from kvsim.vllm.versions import NEWEST

if TYPE_CHECKING:
    from kvsim.engine.connectors.connector import Connector

DEFAULT_SWAP_GIB = 4.0  # vLLM v0's
AnyVictim = Annotated[Victim, OneOf(VICTIMS, "scheduler.victim")]


class SchedulerOptions(Options):
    """Options of one scheduler kind; its fields are the keys of `[scheduler]` other than `kind`.

    preemption_mode: a preempted sequence is computed again ("recompute"), or its KV is copied to
        host memory and back ("swap"). swap_space_gib: of host memory; 4 unless given.
        swap_latency_us: before each copy; 0 unless given. Both belong to "swap".
    victim: the sequence preempted when memory runs out. Not given: as the engine chooses, the last
        to have started, or under policy = "priority" the least urgent. latest: the last to have
        started; lowest-priority: the least urgent; least-computed: fewest tokens computed;
        least-recomputed: fewest tokens to compute again.
    """

    preemption_mode: Literal["recompute", "swap"] = "recompute"
    swap_space_gib: float | None = Field(None, gt=0)
    swap_latency_us: float | None = Field(None, ge=0)
    victim: AnyVictim | None = None

    @model_validator(mode="after")
    def _swap_options_belong_to_swap(self) -> Self:
        for key in ("swap_space_gib", "swap_latency_us"):
            if self.preemption_mode != "swap" and getattr(self, key) is not None:
                raise ValueError(f'{key} changes nothing unless preemption_mode = "swap"')
        return self

    @property
    def order(self) -> Order:
        """Order of the waiting queue: "fcfs" or "priority"."""
        return "fcfs"

    @property
    def depth(self) -> int:
        """Steps in flight: 2 under asynchronous scheduling."""
        return 1

    def depth_over(self, stages: int) -> int:
        """`depth` with this number of pipeline stages: stages + depth - 1 steps are in flight at
        most.
        """
        return self.depth

    @property
    def weighs_max_tokens(self) -> bool:
        """Whether a request's declared max_tokens, instead of its real output length, decides when
        it starts.
        """
        return False

    @property
    def block_rules(self) -> BlockRules:
        """Rules about blocks of the version of vLLM that this scheduler follows."""
        return NEWEST.blocks

    @property
    def engine(self) -> str | None:
        """The engine of this scheduler, "vllm" or "sglang"; None: another one."""
        return None

    @property
    def engine_version(self) -> str | None:
        """Version of vLLM that it schedules as, such as "0.22"; None for another engine."""
        return None

    @property
    def serves(self) -> frozenset[str]:
        """Other parts that this scheduler works with, by their names in `kvsim.support`."""
        return frozenset()

    @property
    def most_adapters(self) -> int:
        """Most LoRA adapters that run at once."""
        return 0

    def with_adapters(self, max_loras: int) -> Self:
        """Return a copy of these options with max_loras set as in [memory]; 0: [memory] does not
        set it.

        InputError if the options contradict it.
        """
        return self

    def drafting(self, speculation: Speculation) -> Speculation:
        """`speculation` with the rules of this engine's version."""
        return speculation

    def check_looks_ahead(self) -> None:
        """Raise InputError if this version's block hashes never cover tokens after the block."""

    def max_in_flight_tokens(self, depth: int) -> int | None:
        """Most tokens computed by `depth` steps in flight; None: prompts are computed whole,
        without limit.
        """
        return None

    def build(self, allocator: Allocator, max_model_len: int) -> Scheduler:
        """A new scheduler over this allocator; InputError if the allocator does not support this
        preemption mode.
        """
        return self.make(allocator, max_model_len, self._policies(allocator))

    def holding(
        self,
        allocator: Allocator,
        max_model_len: int,
        *,
        connector: "Connector | None" = None,
        verifier: Verifier | None = None,
        stages: int = 1,
    ) -> Scheduler:
        """A new scheduler with a KV connector, a verifier of drafts or several pipeline stages.

        InputError if these do not run together.
        """
        raise NotImplementedError(type(self).__name__)  # one that serves any overrides this

    def make(self, allocator: Allocator, max_model_len: int, policies: Policies) -> Scheduler:
        """A new scheduler of this kind with these policies."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this

    def _policies(self, allocator: Allocator) -> Policies:
        victim = self.victim
        if victim is None:
            victim = LowestPriority() if self.order == "priority" else Latest()
        return Policies(queue_of(self.order), victim, self._preemption(allocator))

    def _preemption(self, allocator: Allocator) -> Preemption:
        if self.preemption_mode == "recompute":
            return Recompute()
        if not allocator.swappable:
            raise InputError(
                "layers with a window or a state are not swapped",
                where="scheduler.preemption_mode",
                value=self.preemption_mode,
                remedy="recompute, or set disable_hybrid_kv_cache_manager = true",
            )
        gib = DEFAULT_SWAP_GIB if self.swap_space_gib is None else self.swap_space_gib
        return Swap(int(gib * GIB))
