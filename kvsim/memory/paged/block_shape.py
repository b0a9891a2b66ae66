"""The size of a block, and the number of blocks in a pool."""

from dataclasses import dataclass
from typing import Self

from kvsim.memory.allocator import Refusal
from kvsim.memory.options import MemorySpec
from kvsim.plumbing.errors import InputError


@dataclass(frozen=True, slots=True)
class BlockShape:
    """A pool divided into blocks of equal size.

    block_size: slots (tokens) of a block. slot_bytes: bytes of a slot, all layers together.
    block_bytes: bytes of a block, its slots and its padding. num_blocks: whole blocks in the pool;
    usable_blocks: blocks that requests can have. metadata_bytes: bytes of the other blocks, and the
    remainder of the pool.
    """

    block_size: int
    slot_bytes: int
    block_bytes: int
    num_blocks: int
    usable_blocks: int
    metadata_bytes: int

    def refusal(self, need: int, unit: str, beside: str = "") -> Refusal | None:
        """The refusal of a request that holds `need` blocks at once; None if the pool has enough.

        unit: name of the blocks; beside: further content that the pool must have room for.
        """
        if need <= self.usable_blocks:
            return None
        return Refusal(
            f"it needs more KV blocks than the pool has{beside}",
            need,
            self.usable_blocks,
            unit,
            "shorten the request or enlarge the pool",
        )

    @classmethod
    def of(cls, memory: MemorySpec, block_size: int, block_bytes: int, null_blocks: int) -> Self:
        """The pool of `memory` in blocks of `block_bytes`; InputError if it has no usable block."""
        num_blocks = memory.capacity_bytes // block_bytes
        usable = num_blocks - null_blocks
        if usable < 1:
            raise InputError(
                "the KV pool holds no block beside the null block"
                if null_blocks
                else "the KV pool holds no block",
                where="allocator.block_size",
                value=f"{num_blocks} blocks of {block_size} tokens",
                limit=f"at least {null_blocks + 1}",
                remedy="give the pool more memory or take smaller blocks",
            )
        metadata_bytes = memory.capacity_bytes - usable * block_bytes
        slot_bytes = block_bytes // block_size
        return cls(block_size, slot_bytes, block_bytes, num_blocks, usable, metadata_bytes)
