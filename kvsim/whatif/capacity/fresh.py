"""The load at which fresh seeds also meet the objectives.

Other seeds may break the objectives at the middle of a few edges. Suppose each of n seeds that no
search has seen meets the objectives at a load. Then nine of ten of all seeds do with a confidence
of 1 - 0.9**n. This is the distribution-free tolerance limit of Wilks (1941), the least of n
thresholds.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

SHARE = 0.9  # of all seeds
CONFIDENCE = 0.9
NUM_FRESH = math.ceil(math.log(1 - CONFIDENCE) / math.log(SHARE))  # 22
STEP = 0.95  # from a load that a seed breaks to the next one tried
MOST_STEPS = 80  # to a sixtieth of the first
DIGITS = 3  # what is tried is what is printed

Keeps = Callable[[float, Sequence[int]], list[bool]]


class FreshLoad(NamedTuple):
    """The largest load tried at which all fresh seeds meet the objectives; None if there was none.
    num_seeds: number of fresh seeds. random: whether seeds change the requests at all; if not,
    other requests were not tried.
    """

    value: float | None
    num_seeds: int
    random: bool = True


def fresh_load(start: float, seeds: Sequence[int], keeps: Keeps, *, whole: bool) -> FreshLoad:
    """Step down from `start` until every seed meets the objectives. keeps: for a load and some
    seeds, whether each seed meets them. Seeds that failed at a higher load are tried first.
    """
    value, asked = _rounded(start, whole=whole), tuple(seeds)
    for _ in range(MOST_STEPS):
        if value <= 0:
            break
        broke = [seed for seed, kept in zip(asked, keeps(value, asked), strict=True) if not kept]
        if not broke and len(asked) == len(seeds):
            return FreshLoad(value, len(seeds))
        if broke:
            value, asked = _rounded(value * STEP, whole=whole, below=value), tuple(broke)
        else:
            asked = tuple(seeds)
    return FreshLoad(None, len(seeds))


def _rounded(value: float, *, whole: bool, below: float = math.inf) -> float:
    """The value rounded down, to integers or to DIGITS figures, and less than `below`."""
    if whole:
        return float(min(math.floor(value), below - 1))
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1)
    steps = math.floor(value / unit + 1e-9)
    return float(f"{steps * unit:.{DIGITS}g}")
