"""Definitions of the latencies of finished requests.

Moments are arrays [n] in one unit (ps, or seconds from one origin); so are the latencies.

    queue   arrival to the first step that took the request in
    ttft    arrival to the first output token, of requests with one
    tpot    the mean gap between tokens after the first, of requests with two tokens or more
    e2e     arrival to the last output token, or to the result of a prompt that is computed alone
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
Moments = NDArray[Any]
Floats = NDArray[np.float64]


def queue(arrival: Moments, scheduled: Moments) -> Moments:
    """Queueing time, from arrival to first admission."""
    return scheduled - arrival


def ttft(arrival: Moments, first_token: Moments) -> Moments:
    """Time to first token, from arrival."""
    return first_token - arrival


def tpot(first_token: Moments, last_token: Moments, output_tokens: NDArray[np.int64]) -> Floats:
    """Time per output token after the first; [m], m of the requests having more than one."""
    return mean_gap(first_token, last_token, output_tokens)[output_tokens > 1]


def mean_gap(first_token: Moments, last_token: Moments, output_tokens: NDArray[np.int64]) -> Floats:
    """`tpot` for all requests: (n,), 0 for requests with fewer than two tokens."""
    several = output_tokens > 1
    gaps: Floats = np.where(several, last_token - first_token, 0) / np.maximum(output_tokens - 1, 1)
    return gaps


def e2e(arrival: Moments, last_token: Moments) -> Moments:
    """End-to-end latency, from arrival to the last token."""
    return last_token - arrival


def spread(values: Floats, quantiles: Iterable[str] = QUANTILES) -> dict[str, float]:
    """The mean and the named quantiles of at least one value."""
    names = list(quantiles)
    found = quantiles_of(values, [QUANTILES[name] for name in names])
    return {"mean": float(values.mean()), **dict(zip(names, found, strict=True))}


def quantiles_of(values: Moments, shares: Iterable[float]) -> list[float]:
    """The quantiles of values, equal to numpy.quantile to the last bit.

    That function imports numpy.ma first, which takes longer than a small run has to sort.
    """
    last = len(values) - 1
    ranks = [share * last for share in shares]
    places = [(int(rank), min(int(rank) + 1, last)) for rank in ranks]
    ordered = np.partition(values, sorted({place for pair in places for place in pair}))
    found = []
    for rank, (low, high) in zip(ranks, places, strict=True):
        below, above, share = ordered[low], ordered[high], rank - low
        between = above - below
        found.append(
            float(below + between * share if share < 0.5 else above - between * (1 - share))
        )
    return found
