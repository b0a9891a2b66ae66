"""What an allocator promises a scheduler whose sequences may get KV from outside of the device.

A sequence that loads holds its blocks and computes nothing. Its slots are not valid and its blocks
are in no prefix cache before its load has ended.
"""

from typing import Protocol, runtime_checkable

from kvsim.memory.allocator import Demand
from kvsim.sequence import Sequence


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

    def tables_of(self, seq: Sequence) -> tuple[list[list[int]], list[int]]:
        """Block ids of a sequence by layer group, and how many leading positions of each table
        hold none.
        """
        ...
