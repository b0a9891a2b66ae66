"""Serve a scenario's fleet with one allocator, and summarize the results."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from kvsim.engine.arrivals import Left
from kvsim.engine.observer import Observer
from kvsim.fleet.fleet import Fleet
from kvsim.fleet.members import AnyPart
from kvsim.fleet.options import FleetOptions
from kvsim.fleet.pool import view_of
from kvsim.fleet.routers import ROUTERS
from kvsim.request import Stream
from kvsim.results.routing import RoutingSummary, WavesSummary


class ServedFleet(NamedTuple):
    """A fleet that has served its requests. num_requests: number of requests sent to each
    replica.
    """

    fleet: Fleet
    num_requests: list[int]
    routing: RoutingSummary
    began_s: float


def serve_fleet(
    options: FleetOptions,
    parts: Sequence[AnyPart],
    stream: Stream,
    seed: int,
    *,
    observer_of: Callable[[int], Observer] | None = None,
    like: int = 0,
    progress: Left | None = None,
) -> ServedFleet:
    """Serve `stream` with replicas built from `parts`; other arguments as in `Fleet`."""
    began_s = time.perf_counter()
    view = view_of(parts[0], len(parts), seed, options.characters_per_token)
    fleet = Fleet(
        parts,
        options.build_router(view),
        stream,
        reports=options.router.reports(view),
        report_interval_ps=options.report_interval_ps,
        regret=options.regret and not stream.anonymous,
        observer_of=observer_of,
        failures=options.failure,
        scaling=options.autoscaler,
        like=like,
        progress=progress,
        together=options.router.together,
    )
    fleet.run()
    counts = [0] * len(fleet.members)
    for routed in fleet.routed:
        counts[routed.replica] += 1
    if fleet.changes is not None:
        counts[0] += fleet.changes.num_refused
    routing = RoutingSummary.of(ROUTERS.name_of(options.router), fleet.routed)
    if (waves := fleet.waves) is not None:
        counts_of = waves.num_waves, waves.num_steps, waves.num_dummy_steps
        routing = replace(routing, waves=WavesSummary(*counts_of))
    return ServedFleet(fleet, counts, routing, began_s)
