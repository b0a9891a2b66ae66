"""Relative errors of simulated latencies against recorded ones."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.units import PS_PER_S
from kvsim.results import latency
from kvsim.results.latency import spread
from kvsim.validate.run.replay import Replay

Floats = NDArray[np.float64]


QUANTILES = ("p50", "p90", "p99")
Latencies = dict[str, dict[str, float]]


def request_times(
    run: ObservedRun, times: tuple[Sequence[float], Sequence[float]], which: list[int]
) -> dict[str, Floats]:
    """Arrays ttft_s, tpot_s and e2e_s of the requests at the indices `which`.

    times has (first token, last token) in seconds for all requests. tpot_s has only requests with
    two output tokens or more.
    """
    arrival = np.array([row.arrival_s for row in run.rows])[which]
    outputs = np.array([row.output_tokens for row in run.rows])[which]
    first, last = (np.array(each)[which] for each in times)
    return {
        "ttft_s": latency.ttft(arrival, first),
        "tpot_s": latency.tpot(first, last, outputs),
        "e2e_s": latency.e2e(arrival, last),
    }


def latencies(
    run: ObservedRun, times: tuple[Sequence[float], Sequence[float]], which: list[int]
) -> Latencies:
    """Statistics of ttft_s, tpot_s and e2e_s (mean, p50, p90, p99), and makespan_s (mean only).

    which has the indices of the requests, at least one. times has (first token, last token) in
    seconds for all requests. The makespan lasts from the first arrival to the last token of these
    requests.
    """
    found = request_times(run, times, which)
    table = {name: spread(values, QUANTILES) for name, values in found.items() if len(values)}
    makespan_s = max(times[1][at] for at in which) - min(run.rows[at].arrival_s for at in which)
    return table | {"makespan_s": {"mean": makespan_s}}


def recorded_times(run: ObservedRun) -> tuple[list[float], list[float]]:
    """(first token, last token) in seconds of each request, as recorded from the real engine."""
    return [row.first_token_s for row in run.rows], [row.last_token_s for row in run.rows]


def simulated_times(replay: Replay) -> tuple[list[float], list[float]]:
    """(first token, last token) in seconds of each request in the simulation."""
    first, last = replay.first_token_ps, replay.last_token_ps
    return [ps / PS_PER_S for ps in first], [ps / PS_PER_S for ps in last]


def relative(simulated: Latencies, recorded: Latencies) -> dict[str, dict[str, float] | float]:
    """Simulated / recorded - 1, as signed fractions; makespan_s is one number."""
    errors: dict[str, dict[str, float] | float] = {
        name: {key: simulated[name][key] / value - 1.0 for key, value in figures.items()}
        for name, figures in recorded.items()
        if name != "makespan_s"
    }
    errors["makespan_s"] = simulated["makespan_s"]["mean"] / recorded["makespan_s"]["mean"] - 1.0
    return errors
