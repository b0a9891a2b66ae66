"""Attention times for unmeasured numbers of heads, predicted from measured numbers of heads.

The following errors are of each measured shape of the shipped tables, predicted from its neighbours
alone. Half of the decode times are within 2 % between numbers of query heads, and as a larger batch
of fewer KV heads. Between numbers of KV heads they are within 5 %. Scaled from the nearest shape
they are within 6 %, or 29 % where each query head has its own KV head. Of prompts half are within 3
% between numbers of query heads and 4 % between those of KV heads. A larger batch is no better
there if each query head has its own KV head: 4 % in the median, and in the mean 9 instead of 7 %.
"""

from collections.abc import Mapping
from math import exp, log

from kvsim.step_time.kernels.tables import KernelFamily, KernelLine, Shape, Work


def heads_sheet(
    family: KernelFamily, shape: Shape, work: Work, equal_at: tuple[int, ...], batched: bool = False
) -> dict[int, KernelLine]:
    """Curves by batch of (heads, kv_heads, head_dim, window): the measured ones if there are any.

    Else between two shapes with as many KV heads, straight in logarithms; else, with `batched`,
    those of fewer KV heads in a larger batch. Else between two with as many query heads for each KV
    head; else those of the nearest shape, scaled by the work.
    """
    measured = {each[:-1] for each in family.lines}
    if shape in measured:
        return family.sheet(shape, work, equal_at)
    heads, kv_heads = shape[:2]
    like = [each for each in measured if each[2:] == shape[2:]]
    by_heads = {each[0]: each for each in like if each[1] == kv_heads}
    by_kv = {each[1]: each for each in like if each[0] * kv_heads == heads * each[1]}
    ends = _around(by_heads, heads)
    fewer = [each for each in by_kv if each < kv_heads and not kv_heads % each]
    if ends is None and batched and fewer:
        most = max(fewer)
        found = _batched(family.sheet(by_kv[most], work, ()), kv_heads // most)
        if found:
            return found
    ends = ends or _around(by_kv, kv_heads)
    if ends is None:
        return family.sheet(shape, work, equal_at)
    low, high, part = ends
    below, above = (family.sheet(end, work, ()) for end in (low, high))
    batches = sorted(below.keys() & above.keys())
    return {batch: _in_logarithms(below[batch], above[batch], part) for batch in batches}


def _around(sizes: Mapping[int, Shape], size: int) -> tuple[Shape, Shape, float] | None:
    """(shape of the next smaller size, shape of the next larger one, position of log(size) between
    them from 0 to 1); None if `size` is outside the measured range.
    """
    fewer, more = ([each for each in sizes if (each < size) == less] for less in (True, False))
    if not fewer or not more:
        return None
    low, high = max(fewer), min(more)
    return sizes[low], sizes[high], log(size / low) / log(high / low)


def _batched(lines: dict[int, KernelLine], times: int) -> dict[int, KernelLine]:
    """Curves for `times` times as many heads: a sequence then counts as `times` sequences with the
    measured heads.

    Times are interpolated linearly between measured batches.
    """
    found = {}
    for batch in lines:
        low = max((each for each in lines if each <= batch * times), default=None)
        high = min((each for each in lines if each >= batch * times), default=None)
        if low is not None and high is not None:
            part = 0.0 if low == high else (batch * times - low) / (high - low)
            found[batch] = _straight(lines[low], lines[high], part)
    return found


def _points(low: KernelLine, high: KernelLine) -> list[float]:
    """Values of x at points of either curve, up to the last x that both curves have."""
    most = min(low.x[-1], high.x[-1])
    return sorted(point for point in {*low.x, *high.x} if point <= most)


def _straight(low: KernelLine, high: KernelLine, part: float) -> KernelLine:
    x = _points(low, high)
    return KernelLine(
        tuple(x), tuple((1 - part) * low.at(each) + part * high.at(each) for each in x)
    )


def _in_logarithms(low: KernelLine, high: KernelLine, part: float) -> KernelLine:
    x = _points(low, high)
    us = [exp((1 - part) * log(low.at(each)) + part * log(high.at(each))) for each in x]
    return KernelLine(tuple(x), tuple(us))
