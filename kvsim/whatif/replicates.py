"""Replicates of a scenario, to distinguish a difference from chance.

If the scenario is random, replicates are other seeds. A trace with recorded arrival times has
nothing random; its replicates are windows of equal length, assigned round-robin to three sets.
Changes found on the first set are tested on the second and reported from the third.
"""

import copy
from pathlib import Path
from typing import NamedTuple

from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Stream
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.scenario_tables import Table


class Replicate(NamedTuple):
    """One seed, or one window of a trace. name: `seed 3`, or the window in seconds. window_s: begin
    and end of the window on the trace's clock; None for a seed.
    """

    name: str
    seed: int
    window_s: tuple[float, float] | None

    def put(self, table: Table) -> Table:
        """A copy of the scenario's tables with this seed and this window."""
        table = copy.deepcopy(table)
        table["seed"] = self.seed
        if self.window_s is not None:
            workload = table["workload"]
            workload.pop("limit", None)  # the windows divide what the limit left
            workload["start_s"], workload["end_s"] = self.window_s
        return table


class Replicates(NamedTuple):
    """Three sets of equally many replicates.

    search: for finding changes. test: for testing the changes found. report: for the reported
    numbers. exact: nothing is random and there is no trace to divide, so that all three sets are
    the unchanged scenario.
    """

    search: tuple[Replicate, ...]
    test: tuple[Replicate, ...]
    report: tuple[Replicate, ...]
    exact: bool = False

    def names(self) -> dict[str, list[str]]:
        """Names of the replicates in each set."""
        sets = {"search": self.search, "test": self.test, "report": self.report}
        return {name: [each.name for each in members] for name, members in sets.items()}


def replicates(table: Table, folder: Path, count: int, least: int = 2) -> Replicates:
    """Three sets of `count` replicates. least: the mean number of requests that a window of a trace
    must have.
    """
    first = Scenario.from_table(table, folder).seed
    if _stream(table, folder, first).requests != _stream(table, folder, first + 1).requests:
        made = [Replicate(f"seed {first + at}", first + at, None) for at in range(3 * count)]
        return Replicates(tuple(made[:count]), tuple(made[count:-count]), tuple(made[-count:]))
    windows = _windows(table, folder, 3 * count, least)
    if not windows:
        alone = (Replicate("as it is", first, None),)
        return Replicates(alone, alone, alone, exact=True)
    made = [Replicate(f"{low:.0f} to {high:.0f} s", first, (low, high)) for low, high in windows]
    return Replicates(tuple(made[::3]), tuple(made[1::3]), tuple(made[2::3]))


def _windows(table: Table, folder: Path, count: int, least: int) -> list[tuple[float, float]]:
    """(begin, end) windows in seconds that divide the part of the trace which the scenario uses;
    empty for other workloads.
    """
    workload = table.get("workload")
    if not isinstance(workload, dict) or workload.get("kind") != "trace":
        return []
    if workload.get("arrivals") is not None:
        return []
    unscaled = copy.deepcopy(table)
    for key in ("rate_scale", "rate_per_s"):
        unscaled["workload"].pop(key, None)
    stream = _stream(unscaled, folder, 0)
    times = [request.arrival_ps for request in stream.requests if request.after is None]
    if len(times) < least * count or max(times) == min(times):
        return []
    start = float(workload.get("start_s") or 0.0)
    width = (max(times) - min(times)) / PS_PER_S / count
    return [(start + at * width, start + (at + 1) * width) for at in range(count)]


def _stream(table: Table, folder: Path, seed: int) -> Stream:
    return Simulation(Scenario.from_table({**table, "seed": seed}, folder)).stream
