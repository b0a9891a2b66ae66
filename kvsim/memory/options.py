"""The options of an allocator, and the pool that it is built on."""

from collections.abc import Iterator
from typing import Literal, NamedTuple, Self

from pydantic import PrivateAttr

from kvsim.layout import KVLayout
from kvsim.memory.allocator import Allocator
from kvsim.plumbing.options import Options
from kvsim.speculation import Speculation
from kvsim.vllm.grouping import Grouping
from kvsim.vllm.rules import BlockRules
from kvsim.vllm.versions import NEWEST


class MemorySpec(NamedTuple):
    """The pool an allocator is built on.

    capacity_bytes: the pool. layout: bytes per token by layer group.
    max_model_len: the longest sequence, in tokens, the model (or the user) allows.
    copy_bytes_per_s: device copy bandwidth, bytes moved (read + written) per second.
    hash_lag: tokens by which generated content is hashed late: 1 under asynchronous scheduling, as
        a step is scheduled before its input token has returned.
    steps_ahead: steps scheduled before the oldest one has returned.
    rules: block rules of the engine's version.
    speculation: method of speculative decoding; None without.
    max_in_flight_tokens: most tokens in flight, if prompts are computed in chunks; None: prompts
    are computed whole.
    unwatched: no observer asks for block ids, so an allocator may count blocks instead of keeping
    tables.
    states: number of recurrent states in a second pool; None without one.
    window_tokens: slots of a pool for sliding windows within this one; None: the allocator's
        options divide the pool.
    pool_tokens: tokens that SGLang counts where no layer keeps any; None: the bytes decide.
    plan: the groups of layers and their blocks that an engine has planned; None: the allocator's
        options plan them.
    loads: sequences may load KV from outside of the device (see loading.py). holds: copies hold
    blocks in addition to sequences.
    """

    capacity_bytes: int
    layout: KVLayout
    max_model_len: int
    copy_bytes_per_s: int
    hash_lag: int = 0
    steps_ahead: int = 0
    rules: BlockRules = NEWEST.blocks
    max_in_flight_tokens: int | None = None
    speculation: Speculation | None = None
    unwatched: bool = False
    states: int | None = None
    window_tokens: int | None = None
    pool_tokens: int | None = None
    plan: Grouping | None = None
    loads: bool = False
    holds: bool = False


StoreKind = Literal["blocks", "slots", "buffers"]
WASTE = ("external", "transient", "rounding", "overprovisioned", "reserved")


class Removal(NamedTuple):
    """One or more classes of waste, and the allocator without them; None: the ideal allocator."""

    classes: tuple[str, ...]
    options: "AllocatorOptions | None"


class AllocatorOptions(Options):
    """Options of one allocator kind; its fields are the keys of `[[allocator]]` other than
    `kind`.
    """

    label: str | None = None
    _scheduler: Options | None = PrivateAttr(default=None)

    @property
    def scheduler(self) -> Options | None:
        """The options of a scheduler for this allocator alone, read by the scenario; None: the
        scenario's.
        """
        return self._scheduler

    def under(self, scheduler: Options | None) -> Self:
        """The same allocator options with another scheduler; None: the scenario's."""
        copy = self.model_copy()
        copy._scheduler = scheduler
        return copy

    @property
    def store(self) -> StoreKind | None:
        """The store of the torch backend for this allocator's KV, so that a scenario can be served
        on a real engine.

        "blocks" of one pool (the allocator has a `block_size`), "slots" of one address space, or
        "buffers", a tensor a sequence; `place` returns the addresses. None: no store does.
        """
        return None

    @property
    def serves(self) -> frozenset[str]:
        """The parts that only some allocators run with, of `kvsim.support`: this one with these."""
        return frozenset()

    @property
    def hinted(self) -> bool:
        """Whether the allocator reads the session hints of requests."""
        return False

    @property
    def hierarchical(self) -> bool:
        """Whether its allocator copies to host memory and back during the steps, as SGLang's
        hierarchical cache does.
        """
        return False

    @property
    def shared_key(self) -> str:
        """The key by which the replicas of a fleet have content in common; "": each has its own."""
        return ""

    def removals(self) -> Iterator[Removal]:
        """The cumulative steps that remove one class of waste after another, in the order of WASTE,
        ending with the ideal allocator. A kind without steps of its own goes to the ideal allocator
        at once.
        """
        yield Removal(WASTE, None)

    def resolved(self, memory: MemorySpec) -> Self:
        """A copy with defaults filled in for this pool; the same object if nothing changes."""
        return self

    def build(self, memory: MemorySpec) -> Allocator:
        """A fresh allocator on an empty pool; InputError if the options do not fit the pool."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this
