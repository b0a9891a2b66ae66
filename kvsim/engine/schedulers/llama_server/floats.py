"""32-bit arithmetic and common prefixes, as the server computes them."""

import struct


def f32(value: float) -> float:
    """`value` rounded to a 32-bit float."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def common_prefix(one: list[int], other: list[int]) -> int:
    """Number of leading tokens that two lists have in common."""
    low, high, size = 0, min(len(one), len(other)), 64
    while low < high:  # longer and longer pieces, until one differs
        end = min(low + size, high)
        if one[low:end] != other[low:end]:
            high = end - 1
            break
        low, size = end, 2 * size
    while low < high:  # invariant: `low` tokens are equal, not all `high` + 1 are
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
