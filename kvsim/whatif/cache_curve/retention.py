"""The effect of prefix_cache_retention_interval: runs that cache all content of sliding windows and
recurrent states, or only what a hit needs.

Content of windows and states takes blocks as full attention's does, but most of it can never be
hit. A hit needs only the last blocks of a window, or one state, at the position where the hit ends.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from kvsim.memory.paged.options import Paged
from kvsim.report.numbers import number, percent
from kvsim.results.summary import RunSummary
from kvsim.simulation import Simulation
from kvsim.whatif.cache_curve.run_costs import run_costs


class RetentionRun(NamedTuple):
    """A run under one prefix_cache_retention_interval. summary: summary of the run."""

    interval: int | str
    summary: RunSummary

    @property
    def ratio(self) -> float:
        """Share of the prompt tokens that was hit."""
        return self.summary.prefix_cache.hit_rate or 0.0

    @property
    def cached(self) -> float:
        """Mean share of the pool that holds cached content."""
        return self.summary.memory.time_mean.cached

    @property
    def left(self) -> float:
        """Mean share of the pool that holds cached content of windows and states."""
        memory = self.summary.memory
        return memory.part("cached_windows") + memory.part("cached_states")

    def as_dict(self) -> dict[str, Any]:
        """The run's entry in the JSON answer."""
        return {
            "interval": self.interval,
            "found": self.ratio,
            "cached": self.cached,
            "cached_of_windows_and_states": self.left,
            **run_costs(self.summary),
        }


def compare_retention(
    simulation: Simulation, paged: Paged, progress: Callable[[str], None] = lambda _: None
) -> list[RetentionRun]:
    """Simulate caching everything, caching as little as possible, and the interval of `paged` if it
    is in between.
    """
    intervals: list[int | str] = ["none", 0]
    own = paged.prefix_cache_retention_interval
    if own is not None and own not in intervals:
        intervals.append(own)
    runs = []
    for at, interval in enumerate(intervals, 1):
        progress(f"{interval}: run {at} of {len(intervals)}")
        options = paged.model_copy(update={"prefix_cache_retention_interval": interval})
        summary = simulation.run(options, f"retention {interval}").summary
        runs.append(RetentionRun(interval, summary))
    return runs


def bought(runs: list[RetentionRun], whole: float) -> str:
    """A sentence on how the hit rate changes with retention.

    whole: hit rate of a cache of the pool's size that stores all layers of each token.
    """
    dense, least = runs[0], runs[1]
    ttft = [run.summary.ttft_s.mean for run in (dense, least)]
    verb = "buys" if least.ratio >= dense.ratio else "costs"
    points = 100 * abs(least.ratio - dense.ratio)
    if not (dense.ratio or least.ratio):
        return "Retention buys nothing here: nothing is found, whatever is kept."
    beyond = ""
    if least.ratio > whole:
        beyond = " The curve is of caches that keep each token in all layers; windows need not."
    return (
        f"Retention {verb} {points:.1f} points of hits: everything kept, "
        f"{percent(dense.ratio)} of the prompt tokens are found; with only what a resent prompt "
        f"and places where prompts part need, {percent(least.ratio)}. What windows and states left "
        f"behind takes {percent(least.left)} of the pool then, and {percent(dense.left)} where "
        f"everything is kept. Mean TTFT {number(ttft[1])} s against {number(ttft[0])} s."
        f"{beyond}"
    )
