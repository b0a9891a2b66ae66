"""The blocks of torch's caching allocator, and the sizes it works with."""

from enum import IntEnum
from typing import NamedTuple

from kvsim.plumbing.units import MIB, ceil_div

MIN_BLOCK = 512  # sizes are multiples of it
SMALL_SIZE = MIB  # requests up to it come from the small pool
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
MIN_LARGE_REQUEST = 10 * MIB  # from here on a request has a segment of its own size
ROUND_LARGE = 2 * MIB


def round_size(size: int) -> int:
    """The block size in bytes that serves a request of `size` bytes: 512-byte multiples."""
    return ceil_div(max(size, 1), MIN_BLOCK) * MIN_BLOCK


def segment_size(rounded: int) -> int:
    """Bytes of the device allocation made for a block of `rounded` bytes."""
    if rounded <= SMALL_SIZE:
        return SMALL_SEGMENT
    if rounded < MIN_LARGE_REQUEST:
        return LARGE_SEGMENT
    return ceil_div(rounded, ROUND_LARGE) * ROUND_LARGE


class State(IntEnum):
    """The state of a range of a segment; UNMAPPED is address space without memory."""

    FREE = 0
    ALLOCATED = 1
    UNMAPPED = 2


class Block(NamedTuple):
    """A range of one segment (named by its address)."""

    address: int
    size: int
    segment: int
    state: State

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.address + self.size


class Segment(NamedTuple):
    """A device allocation, or the address range that memory is mapped into."""

    address: int
    size: int
    small: bool

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.address + self.size
