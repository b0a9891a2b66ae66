"""The interface between an allocator and a scheduler under a KV connector.

A sequence that loads holds its blocks and computes nothing. Its slots are not valid and its blocks
are in no prefix cache before its load has ended.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from kvsim.memory.allocator import Demand
from kvsim.sequence import Sequence

HeldBlock = Any  # a block of a pool, opaque outside of its allocator


class FreeBlock(NamedTuple):
    """A free block: its number, and its key, -1 without one. block: None if it never had a key."""

    number: int
    key: int
    block: HeldBlock | None


class NamedState(NamedTuple):
    """A block that holds the recurrent state after `tokens` tokens. group: index of its table."""

    group: int
    number: int
    tokens: int


class HoldingPromise(Protocol):
    """Copies hold blocks, in addition to sequences."""

    def keys_of(self, seq: Sequence, start: int, end: int) -> list[int]:
        """Keys of the blocks of a sequence from place `start` to `end`, as far as these have
        keys.
        """
        ...

    def named_blocks(
        self, seq: Sequence, start: int, end: int
    ) -> list[tuple[int, HeldBlock] | None]:
        """Key and block at each place; None: the content has no key."""
        ...

    def still_free(self, block: FreeBlock) -> FreeBlock | None:
        """A block that was free, with what it holds now; None: it is in use."""
        ...

    def free_blocks(self, after: FreeBlock | None, most: int) -> list[FreeBlock]:
        """At most `most` free blocks in the order of allocation, after the free block `after`;
        None: from the first on.
        """
        ...

    def hold(self, blocks: list[HeldBlock]) -> None:
        """A copy holds these blocks."""
        ...

    def let_go(self, blocks: list[HeldBlock]) -> None:
        """A copy releases these blocks; those without other holders become free in this order."""
        ...


class LoadingPromise(Protocol):
    """Blocks that an allocator offers a scheduler with a KV connector.

    For one sequence the calls come in this order: `start_load`, `end_load`, `resume`.
    """

    @property
    def copied(self) -> HoldingPromise | None:
        """Blocks that copies hold; None if none do."""
        ...

    def start_load(self, seq: Sequence, demand: Demand, kept_blocks: int) -> bool:
        """Allocate blocks for `demand.num_tokens` tokens to a waiting sequence; those after
        `demand.cached_tokens` will be loaded.

        False: no room, nothing changed. kept_blocks: free blocks that running prompts still need.
        """
        ...

    def end_load(self, seq: Sequence, num_tokens: int) -> None:
        """The first `num_tokens` slots of a sequence are valid, and known content: its load has
        ended, or the last of its steps has returned.
        """
        ...

    def name_returned(self, seq: Sequence, num_tokens: int) -> None:
        """A step has returned, while none is being scheduled: the first `num_tokens` tokens of
        `seq`, which is not loading, are computed and known. Others may find them from now on.
        """
        ...

    def resume(self, seq: Sequence, demand: Demand) -> bool:
        """Allocate until a sequence with a finished load holds `demand.num_tokens` valid slots;
        False: no room, nothing changed.
        """
        ...

    def leave_behind(self, seq: Sequence) -> None:
        """A sequence has finished, and has no steps in flight: blocks that its windows have left
        are freed first.
        """
        ...

    def keep_for_reader(self, seq: Sequence) -> None:
        """A finished sequence keeps its blocks until another engine has read them."""
        ...

    def lacking_blocks(self, seq: Sequence, num_tokens: int) -> int:
        """Blocks that a sequence with memory still needs for its `num_tokens` known tokens, and for
        the next step if that verifies drafts.
        """
        ...

    def junction_tokens(self, seq: Sequence) -> int:
        """Number of tokens after which others diverge from a sequence; 0: none."""
        ...

    def take_named_states(self) -> dict[Sequence, list[NamedState]]:
        """The recurrent states that got a key since the last call, by sequence, in the order of
        their tables. States of sequences without memory are left out.
        """
        ...

    def held_blocks(self, seq: Sequence) -> list[int]:
        """Number of blocks of a sequence by layer group."""
        ...

    def tables_of(self, seq: Sequence) -> tuple[list[list[int]], list[int]]:
        """Block ids of a sequence by layer group, and the number of leading empty positions of each
        table.
        """
        ...


@runtime_checkable
class LoadsBlocks(Protocol):
    """An allocator that may be under a KV connector."""

    @property
    def loading(self) -> LoadingPromise | None:
        """The blocks of its sequences; None without a connector."""
        ...
