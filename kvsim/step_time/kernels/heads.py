"""Attention of numbers of heads that were not measured: between those that were.

Each measured shape of the shipped tables, predicted from its neighbours alone: half of the decode
times are within 2 % between numbers of query heads and within 5 % between those of KV heads; of
prompts within 3 and 4 %. Scaled from the nearest shape they were within 2, 10, 9 and 10 %.
"""

from collections.abc import Collection
from math import exp, log

from kvsim.step_time.kernels.tables import KernelFamily, KernelLine, Shape, Work


def heads_sheet(
    family: KernelFamily, shape: Shape, work: Work, equal_at: tuple[int, ...]
) -> dict[int, KernelLine]:
    """Curves by batch of (heads, kv_heads, head_dim, window): the measured ones; else between two
    shapes around it, straight in logarithms; else those of the nearest shape, scaled by the work.
    """
    ends = _around({each[:-1] for each in family.lines}, shape)
    if ends is None:
        return family.sheet(shape, work, equal_at)
    low, high, part = ends
    below, above = (family.sheet(end, work, ()) for end in (low, high))
    batches = sorted(below.keys() & above.keys())
    return {batch: _between(below[batch], above[batch], part) for batch in batches}


def _around(measured: Collection[Shape], shape: Shape) -> tuple[Shape, Shape, float] | None:
    """The next fewer and the next more heads, and how far `shape` is between their logarithms: of
    as many KV heads, else of as many query heads for each KV head. None where it was measured, or
    has none on one side.
    """
    if shape in measured:
        return None
    heads, kv_heads = shape[:2]
    like = [each for each in measured if each[2:] == shape[2:]]
    by_heads = {each[0]: each for each in like if each[1] == kv_heads}
    by_kv = {each[1]: each for each in like if each[0] * kv_heads == heads * each[1]}
    for sizes, size in ((by_heads, heads), (by_kv, kv_heads)):
        fewer, more = ([each for each in sizes if (each < size) == less] for less in (True, False))
        if fewer and more:
            low, high = max(fewer), min(more)
            return sizes[low], sizes[high], log(size / low) / log(high / low)
    return None


def _between(low: KernelLine, high: KernelLine, part: float) -> KernelLine:
    """As far as both were measured."""
    most = min(low.x[-1], high.x[-1])
    x = sorted(point for point in {*low.x, *high.x} if point <= most)
    us = [exp((1 - part) * log(low.at(each)) + part * log(high.at(each))) for each in x]
    return KernelLine(tuple(x), tuple(us))
