"""Make measured times consistent: k times the work takes at least as long, at most k times.

A kernel of k times the tokens takes at least as long, and at most k times as long. Measurements
break both by their noise. A point that breaks them is moved to the middle of the nearest curves
above and below that do not. And a kernel takes at least the time of the bytes it reads. Kernels
measured again and again on small inputs found them on the chip, where a layer of a model finds
those of the previous layer.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvsim.step_time.kernels.tables import KernelLine

Floats = NDArray[np.float64]
LONGEST = 2**21


def steady(x: ArrayLike, times: ArrayLike) -> Floats:
    """[n, ...] times at ascending x > 0, never falling, and never growing by more than x does."""
    given = np.asarray(times, np.float64)
    at = np.asarray(x, np.float64).reshape(-1, *(1,) * (given.ndim - 1))
    most = np.maximum.accumulate(given)
    least = np.minimum.accumulate(given[::-1])[::-1]
    rates = (most + least) / 2 / at
    low = np.minimum.accumulate(rates)
    high = np.maximum.accumulate(rates[::-1])[::-1]
    return np.asarray((low + high) / 2 * at)


def at_least(line: KernelLine, floor: Iterable[float]) -> KernelLine:
    """The curve raised to `floor`, which has a least time for each of its points."""
    return KernelLine(
        line.x, tuple(max(us, least) for us, least in zip(line.us, floor, strict=True))
    )


def steady_batches(
    lines: dict[int, KernelLine], token_us: float, window: int | None
) -> dict[int, KernelLine]:
    """Curves by batch over the context of each sequence, made consistent by these rules. token_us:
    the time of a context token's bytes; window: of how many tokens at most, None for all.
    """
    x = sorted({0.0, *(each for line in lines.values() for each in line.x), float(LONGEST)})
    batches = np.array(sorted(lines), np.float64)
    us = np.array([[lines[int(batch)].at(each) for each in x] for batch in batches])
    seen = np.minimum(x, window or LONGEST)
    us = np.maximum(us, token_us * seen * batches[:, None])
    us = np.maximum.accumulate(steady(batches, us), axis=1)
    return {
        int(batch): KernelLine(tuple(x), tuple(each.tolist()))
        for batch, each in zip(batches, us, strict=True)
    }
