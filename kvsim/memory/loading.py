"""What an allocator promises a scheduler whose sequences may get KV from outside of the device.

A sequence that loads holds its blocks and computes nothing. Its slots are not valid and its blocks
are in no prefix cache before its load has ended.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from kvsim.memory.allocator import Demand
from kvsim.sequence import Sequence

HeldBlock = Any  # a block of a pool, as its allocator knows it


class FreeBlock(NamedTuple):
    """A free block: its number, and what it is found by, -1: nothing. block: None for one that
    never held anything that could be found.
    """

    number: int
    key: int
    block: HeldBlock | None


@runtime_checkable
class LoadingPromise(Protocol):
    """The calls in the order of a sequence's life: `start_load`, `end_load`, `resume`."""

    def start_load(self, seq: Sequence, demand: Demand, kept_blocks: int) -> bool:
        """Give a waiting sequence blocks for `demand.num_tokens` tokens, of which those behind
        `demand.cached_tokens` will be loaded; False: no room, nothing changed. kept_blocks: free
        blocks that prompts under way still need.
        """
        ...

    def end_load(self, seq: Sequence, num_tokens: int) -> None:
        """The first `num_tokens` slots of a loading sequence are valid, and known content."""
        ...

    def resume(self, seq: Sequence, demand: Demand) -> bool:
        """Make room so that a sequence whose load has ended holds `demand.num_tokens` valid slots;
        False: no room, nothing changed.
        """
        ...

    def keep_for_reader(self, seq: Sequence) -> None:
        """A finished sequence, no part of which is in flight, keeps its blocks until somebody else
        has read them; those that its windows have left go.
        """
        ...

    def lacking_blocks(self, seq: Sequence) -> int:
        """Blocks that a sequence with memory needs beside its own for all tokens known of it."""
        ...

    def junction_tokens(self, seq: Sequence) -> int:
        """After how many tokens others were seen to part from a sequence; 0: nowhere."""
        ...

    def tables_of(self, seq: Sequence) -> tuple[list[list[int]], list[int]]:
        """Block ids of a sequence by layer group, and how many leading positions of each table
        hold none.
        """
        ...


@runtime_checkable
class HoldingPromise(LoadingPromise, Protocol):
    """Copies hold blocks beside sequences: such a block is not free before all have let it go."""

    def keys_of(self, seq: Sequence, start: int, end: int) -> list[int]:
        """What the blocks of a sequence from place `start` to `end` are found by, as far as they
        have such keys.
        """
        ...

    def named_blocks(
        self, seq: Sequence, start: int, end: int
    ) -> list[tuple[int, HeldBlock] | None]:
        """Key and block at each of these places; None: the content has no key."""
        ...

    def free_blocks(self, after: FreeBlock | None, most: int) -> list[FreeBlock]:
        """At most so many free blocks in the order in which they leave, behind `after`, or from the
        first on where that is free no more.
        """
        ...

    def hold(self, blocks: list[HeldBlock]) -> None:
        """A copy holds these."""
        ...

    def let_go(self, blocks: list[HeldBlock]) -> None:
        """A copy lets these go; those that nobody holds any more come back in this order."""
        ...
