"""Find the steady part of a run: after the warm-up, and before the drain.

The drain begins when no new request arrives, except later requests of running conversations; in a
closed loop, when its users leave. The warm-up is cut so that the rest has the smallest standard
error of the number of running sequences. Source: MSER (White, "An effective truncation heuristic
for bias reduction in simulation output", Simulation 69(6), 1997). If half of a series would be cut,
it is too short, as in MSER.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.results.departed import Departed, Finished

Floats = NDArray[np.float64]

BATCHES = 200
LEAVING = 0.1  # of the users of a closed loop may have left
_DUST = 1e-12  # of rounding: cuts within it are equal, and the first is taken


class SteadyPart(NamedTuple):
    """The interval start_ps <= t <= end_ps that is steady; or reason: why no part is."""

    start_ps: int
    end_ps: int
    reason: str | None = None


def find_steady(
    times: NDArray[np.int64], running: NDArray[np.int64], first_ps: int, last_ps: int
) -> SteadyPart:
    """The steady part of first_ps <= t <= last_ps, the time in which new requests arrived.

    times: (n + 1,) in order; running: (n,) sequences between each two of them.
    """
    if last_ps <= first_ps:
        return SteadyPart(0, 0, "everything began at once, so the run only drains")
    edges = np.linspace(first_ps, last_ps, BATCHES + 1)
    warm = mser(batch_means(times, running, edges))
    if warm is None:
        return SteadyPart(0, 0, "the number of running sequences never settled")
    return SteadyPart(round(edges[warm]), last_ps)


def fed_until(finished: Finished, finish_ps: NDArray[np.int64]) -> int:
    """Time in ps of the last arrival that is not a later request of a conversation.

    In a closed loop: until a tenth of the users have no requests left.
    """
    if all(request.session is None and request.after is None for request in finished.requests):
        return int(finished.column("arrival_ps").max())
    begins = _beginnings(finished)
    users = sum(not seq.request.any_user for seq in begins)
    if users == len(begins):
        return max(seq.arrival_ps for seq in begins)
    last_ps = max(seq.arrival_ps - seq.request.think_ps for seq in begins)
    followed = {seq.request.after for seq in finished if not seq.request.any_user}
    ends: dict[str, int] = {}
    for seq, end_ps in zip(finished, finish_ps.tolist(), strict=True):
        if seq.request.id not in followed and end_ps > last_ps:
            ends[seq.request.id] = max(end_ps, ends.get(seq.request.id, 0))
    return sorted(ends.values())[min(len(ends) - 1, int(users * LEAVING))]


def _beginnings(finished: Finished) -> list[Departed]:
    """Departures of single requests, and of the first of each conversation."""
    first: dict[str, int] = {}
    for seq in finished:
        session = seq.request.session
        if session is not None:
            first[session] = min(seq.arrival_ps, first.get(session, seq.arrival_ps))
    return [
        seq
        for seq in finished
        if seq.request.session is None or seq.arrival_ps == first[seq.request.session]
    ]


def batch_means(times: NDArray[np.int64], values: NDArray[np.int64], edges: Floats) -> Floats:
    """Means over time between neighbouring edges (b + 1,) -> (b,) of a step function. It is
    values[i] from times[i] to times[i + 1], and 0 elsewhere.
    """
    areas = np.concatenate([[0.0], np.cumsum(np.diff(times) * values.astype(np.float64))])
    means: Floats = np.diff(np.interp(edges, times, areas)) / np.diff(edges)
    return means


def mser(values: Floats) -> int | None:
    """Number of leading values to cut, at most half of them; None if half are not enough."""
    n = len(values)
    left = np.arange(n, 0, -1, dtype=np.float64)
    values = values - values.mean()
    sums = np.cumsum(values[::-1])[::-1]
    squares = np.cumsum((values**2)[::-1])[::-1]
    # The variance of the mean of what is left, for each cut; rounding may take it below zero.
    errors = np.maximum(squares - sums**2 / left, 0.0) / left**2
    most = n // 2
    least = errors[: most + 1].min() + _DUST * errors.max()
    cut = int(np.argmax(errors <= least))
    return None if cut == most else cut
