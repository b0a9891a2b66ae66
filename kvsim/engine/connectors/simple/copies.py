"""The copies of the Simple connector: one copy has all loads of a step, another all its stores."""

from typing import NamedTuple

from kvsim.memory.loading import HeldBlock
from kvsim.sequence import Sequence


class BlockPair(NamedTuple):
    """A device block, the key of its content, and the host block that it is copied to or from."""

    held: HeldBlock
    key: int
    host: int


class SimpleLoad(NamedTuple):
    """One copy to the device, for several waiting sequences. host: the host blocks that it reads,
    by sequence.
    """

    seqs: list[Sequence]
    host: list[list[int]]
    num_blocks: int


class SimpleStore(NamedTuple):
    """One copy to host memory. pairs: the blocks that it reads and writes."""

    pairs: list[BlockPair]
