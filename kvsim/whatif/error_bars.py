"""Error bars of plotly for numbers that are never below 0."""

from collections.abc import Sequence
from typing import Any


def error_bars(
    means: Sequence[float],
    half_widths: Sequence[float],
    lows: Sequence[float] | None = None,
    most: Sequence[float] | None = None,
) -> dict[str, Any] | None:
    """Options `error_y` of a trace; None where there is no interval. lows: the lower ends, where
    intervals are not as wide below the mean as above. most: what the numbers never pass.
    """
    if not any(half_widths):
        return None
    below = [min(mean, half) for mean, half in zip(means, half_widths, strict=True)]
    if lows is not None:
        below = [min(mean, mean - low) for mean, low in zip(means, lows, strict=True)]
    above = list(half_widths)
    if most is not None:
        above = [min(half, cap - mean) for mean, half, cap in zip(means, above, most, strict=True)]
    return {"array": above, "arrayminus": below, "symmetric": False, "thickness": 1}
