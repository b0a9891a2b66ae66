"""A scenario's fleet under one allocator: built, run, and put into numbers."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from kvsim.engine.arrivals import Left
from kvsim.engine.observer import Observer
from kvsim.engine.replica import RunningReplica
from kvsim.fleet.fleet import Fleet, FleetPart
from kvsim.fleet.options import FleetOptions
from kvsim.fleet.routers import ROUTERS
from kvsim.fleet.routers.options import FleetView
from kvsim.request import Stream
from kvsim.results.fleet import FleetSummary, FleetTotals, summarise_fleet
from kvsim.results.summary import RunSummary

BLOCK_SIZE = 16  # where an allocator has no blocks: vLLM's default


class ServedFleet(NamedTuple):
    """A fleet that has served its requests. num_requests: sent to each replica."""

    fleet: Fleet
    num_requests: list[int]
    began_s: float

    @property
    def replicas(self) -> Sequence[RunningReplica]:
        return self.fleet.replicas

    def summary(
        self,
        options: FleetOptions,
        label: str,
        summaries: Sequence[RunSummary],
        gpus: Sequence[int],
    ) -> FleetSummary:
        """The numbers of the fleet. summaries, gpus: one a replica."""
        return summarise_fleet(
            FleetTotals(
                label,
                ROUTERS.name_of(options.router),
                summaries,
                [each.recorder for each in self.replicas],
                gpus,
                self.fleet.routed,
                options.price_per_gpu_hour,
                {str(name): limit_s for name, limit_s in options.objectives.items()},
                time.perf_counter() - self.began_s,
            )
        )


def serve_fleet(
    options: FleetOptions,
    parts: Sequence[FleetPart],
    stream: Stream,
    seed: int,
    *,
    observers: Sequence[Observer] | None = None,
    progress: Left | None = None,
) -> ServedFleet:
    """Serve `stream` by replicas of these parts; arguments as `Fleet` has them."""
    began_s = time.perf_counter()
    spec = parts[0].spec
    block_size = getattr(spec.allocator, "block_size", None) or BLOCK_SIZE
    block_bytes = block_size * spec.layout.bytes_per_token
    view = FleetView(
        len(parts),
        seed,
        block_size,
        spec.capacity_bytes // block_bytes if block_bytes else None,
        options.characters_per_token,
    )
    fleet = Fleet(
        parts,
        options.router.build(view),
        stream,
        reports=options.router.reports(view),
        looks_ps=options.router.looks_ps,
        regret=options.regret and not stream.anonymous,
        observers=observers,
        progress=progress,
    )
    fleet.run()
    counts = [0] * len(parts)
    for routed in fleet.routed:
        counts[routed.replica] += 1
    return ServedFleet(fleet, counts, began_s)
