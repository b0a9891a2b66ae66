"""The copies of the Simple connector: all loads of a step are one, and all its stores another."""

from typing import NamedTuple

from kvsim.memory.loading import HeldBlock
from kvsim.sequence import Sequence


class BlockPair(NamedTuple):
    """A block of the device, its content's key, and the block of host memory it is copied to or
    from.
    """

    held: HeldBlock
    key: int
    host: int


class SimpleLoad(NamedTuple):
    """Blocks of sequences that wait for one copy. host: what it reads."""

    seqs: list[Sequence]
    host: list[list[int]]
    num_blocks: int


class SimpleStore(NamedTuple):
    """Blocks that one copy reads and writes."""

    pairs: list[BlockPair]
