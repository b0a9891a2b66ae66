"""The interface between an allocator and a scheduler under a KV connector.

A sequence that loads holds its blocks and computes nothing. Its slots are not valid and its blocks
are in no prefix cache before its load has ended.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from kvsim.memory.allocator import Demand
from kvsim.sequence import Sequence

HeldBlock = Any  # a block of a pool, opaque outside of its allocator


class FreeBlock(NamedTuple):
    """A free block: its number, and the key of its cached content, -1 without one. block: the block
    itself; None if it never had a key.
    """

    number: int
    key: int
    block: HeldBlock | None


class NamedState(NamedTuple):
    """A block that caches the recurrent state after `tokens` tokens. group: index of its layer
    group.
    """

    group: int
    number: int
    tokens: int


class HoldingPromise(Protocol):
    """Interface for offload copies that pin blocks, in addition to the sequences that hold them. A
    key identifies content of one layer group.
    """

    def keys_of(self, seq: Sequence, start: int, end: int, group: int) -> list[int]:
        """Keys (block hashes) of the blocks of a sequence from index `start` to `end`, as far as
        they have keys.
        """
        ...

    def named_blocks(
        self, seq: Sequence, start: int, end: int, group: int
    ) -> list[tuple[int, HeldBlock] | None]:
        """(key, block) at each index of a sequence's block table from `start` to `end` - 1; None:
        the content has no key. If a window has freed the block, any cached block with the same
        content.
        """
        ...

    def named_block(self, number: int) -> tuple[int, HeldBlock] | None:
        """(key, block) of a block id, free or in use; None: its content has no key."""
        ...

    def still_free(self, block: FreeBlock) -> FreeBlock | None:
        """The current content of a block that was free; None: the block is in use."""
        ...

    def free_blocks(self, after: FreeBlock | None, most: int) -> list[FreeBlock]:
        """At most `most` free blocks in the order of allocation, starting after the free block
        `after`; None: from the head of the free queue.
        """
        ...

    def hold(self, blocks: list[HeldBlock]) -> None:
        """A copy pins these blocks."""
        ...

    def let_go(self, blocks: list[HeldBlock]) -> None:
        """A copy unpins these blocks; blocks without other owners are freed in this order."""
        ...


class LoadingPromise(Protocol):
    """Block operations of an allocator for a scheduler with a KV connector.

    For one sequence the calls come in this order: `start_load`, `end_load`, `resume`.
    """

    @property
    def copied(self) -> HoldingPromise | None:
        """Access to the blocks that offload copies pin; None if copies pin none."""
        ...

    def start_load(self, seq: Sequence, demand: Demand, kept_blocks: int) -> bool:
        """Allocate blocks for `demand.num_tokens` tokens to a waiting sequence; the KV after the
        first `demand.cached_tokens` will be loaded.

        False: no room, nothing changed. kept_blocks: free blocks that running prompts still need.
        """
        ...

    def full_hit_tokens(self, seq: Sequence) -> int:
        """Tokens of a waiting sequence that full attention has cached, even if other layer groups
        have fewer. If another group has more, or the model has no recurrent states, the tokens that
        all groups have cached.
        """
        ...

    def end_load(self, seq: Sequence, num_tokens: int) -> None:
        """Mark the first `num_tokens` slots of a sequence as valid and cached: its load has ended,
        or the last of its steps has returned.
        """
        ...

    def name_returned(self, seq: Sequence, num_tokens: int) -> None:
        """Cache the first `num_tokens` tokens of `seq` after a step has returned, so that others
        can hit them. `seq` is not loading, and no step is being scheduled.
        """
        ...

    def resume(self, seq: Sequence, demand: Demand) -> bool:
        """Allocate until a sequence with a finished load holds `demand.num_tokens` valid slots;
        False: no room, nothing changed.
        """
        ...

    def leave_behind(self, seq: Sequence) -> None:
        """Free the blocks outside the sliding windows of a sequence that has finished and has no
        steps in flight.
        """
        ...

    def release_late(self, seq: Sequence) -> None:
        """Free the blocks of a finished sequence that were held until its last step was processed.
        As in vLLM, blocks of the last layer group are freed first.
        """
        ...

    def keep_for_reader(self, seq: Sequence) -> None:
        """Hold the blocks of a finished sequence for transfer, until another engine has read
        them.
        """
        ...

    def blocks_to_load(self, seq: Sequence) -> tuple[int, int]:
        """(blocks needed to start a load of all known tokens of `seq` with nothing cached, free
        blocks).
        """
        ...

    def lacking_blocks(self, seq: Sequence, num_tokens: int) -> int:
        """Blocks that a sequence with memory still needs for its `num_tokens` known tokens, and for
        the next step if that verifies drafts.
        """
        ...

    def junction_tokens(self, seq: Sequence) -> int:
        """The shared-prefix boundary: number of tokens after which other sequences diverge from
        `seq`; 0: none.
        """
        ...

    def take_named_states(self) -> dict[Sequence, list[NamedState]]:
        """The recurrent states cached since the last call, by sequence, in the order of layer
        groups. States of sequences that hold no memory are left out.
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
    """An allocator that supports a KV connector."""

    @property
    def loading(self) -> LoadingPromise | None:
        """Block operations for the connector; None without a connector."""
        ...
