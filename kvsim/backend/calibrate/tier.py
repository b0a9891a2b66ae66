"""The latency and bandwidth of a tier's link, fitted to measured copies."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.backend.measure.tier_copies import CopySample, Way
from kvsim.step_time.calibrated.fitted import Errors

Floats = NDArray[np.float64]


class LinkFit(NamedTuple):
    """A copy of b bytes takes `latency_s[way] + b / bytes_per_s[way]`.

    errors: relative errors by way, of every second size from a fit on the others.
    """

    latency_s: dict[Way, float]
    bytes_per_s: dict[Way, float]
    errors: dict[Way, Errors]


def fit_link(samples: Sequence[CopySample], *, one_latency: bool) -> LinkFit:
    """Least squares of relative errors over all samples; coefficients are at least zero.

    one_latency: both ways have the same latency, as vLLM's tier in host memory is described.
    """
    ways = list(dict.fromkeys(each.way for each in samples))
    sizes = sorted({each.num_bytes for each in samples})
    fitted_on = set(sizes[::2]) | set(sizes[-1:])
    known = [each for each in samples if each.num_bytes in fitted_on]
    others = [each for each in samples if each.num_bytes not in fitted_on] or known
    trial = _solve(known, ways, one_latency=one_latency)
    errors = {}
    for way in ways:
        asked = [each for each in others if each.way == way]
        found = _columns(asked, ways, one_latency=one_latency) @ trial
        errors[way] = Errors.of([float(error) for error in found - 1.0])
    final = _solve(samples, ways, one_latency=one_latency)
    latencies, slopes = final[: -len(ways)], final[-len(ways) :]
    return LinkFit(
        {way: float(latencies[0 if one_latency else at]) for at, way in enumerate(ways)},
        {way: float(1.0 / slopes[at]) for at, way in enumerate(ways)},
        errors,
    )


def _solve(samples: Sequence[CopySample], ways: Sequence[Way], *, one_latency: bool) -> Floats:
    from scipy.optimize import nnls

    columns = _columns(samples, ways, one_latency=one_latency)
    # Columns of like size: seconds a byte are a billionth of seconds.
    scale: Floats = np.max(columns, axis=0)
    found: Floats = nnls(columns / scale, np.ones(len(samples)))[0]
    return found / scale


def _columns(samples: Sequence[CopySample], ways: Sequence[Way], *, one_latency: bool) -> Floats:
    """Regressors [n, p] of predicted over measured time: latencies first, then bytes by way."""
    is_way = np.asarray([[each.way == way for way in ways] for each in samples], dtype=np.float64)
    seconds = np.asarray([each.seconds for each in samples], dtype=np.float64)[:, None]
    num_bytes = np.asarray([each.num_bytes for each in samples], dtype=np.float64)[:, None]
    latency: Floats = np.ones_like(seconds) if one_latency else is_way
    columns: Floats = np.hstack([latency, is_way * num_bytes])
    return columns / seconds
