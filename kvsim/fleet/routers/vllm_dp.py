"""vLLM's balancer over the data-parallel ranks of one server (`DPLBAsyncMPClient`)."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from kvsim.engine.clock import EngineClock
from kvsim.engine.ranks import Ranks
from kvsim.fleet.load import Load
from kvsim.fleet.reports import Published, Reports
from kvsim.fleet.routers.options import FleetView, RouterOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router
from kvsim.plumbing.units import PS_PER_MS

Counts = list[float]


class VllmDp(RouterOptions):
    """Balances data-parallel ranks as vLLM. rule: of 0.33, which counts its own open requests and
    rotates ties, or the older `waiting * 4 + running` (0.14, 0.19). client_count, client_index:
    number of front ends, and index of this one. lockstep: ranks of a mixture of experts step
    together, also ranks without work; they agree on the end of a wave every dp_sync_interval steps.
    stats_update_interval_ms: time between two publications of the coordinator.
    """

    rule: Literal["0.33", "0.19"] = "0.33"
    client_count: int = Field(1, ge=1)
    client_index: int = Field(0, ge=0)
    lockstep: bool = False
    dp_sync_interval: int = Field(16, ge=1)
    stats_update_interval_ms: float = Field(100.0, gt=0)

    @model_validator(mode="after")
    def _one_of_the_front_ends(self) -> "VllmDp":
        if self.client_index >= self.client_count:
            raise ValueError("client_index must be below client_count")
        return self

    def reports(self, view: FleetView) -> Reports:
        interval_ps = round(self.stats_update_interval_ms * PS_PER_MS)
        return Published(view.num_replicas, interval_ps, lockstep=self.lockstep)

    def together(self, env: EngineClock) -> Ranks | None:
        return Ranks(env, self.dp_sync_interval) if self.lockstep else None

    @property
    def lets_step_together(self) -> bool:
        return self.lockstep

    def process(self, index: int, count: int) -> "VllmDp":
        """The options of one front end of several, if client_count is not given."""
        if self.client_count > 1:
            return self
        return self.model_copy(update={"client_count": count, "client_index": index})

    def build(self, view: FleetView) -> "VllmDpRouter":
        return VllmDpRouter(self, view.num_replicas)


class VllmDpRouter(Router):
    """One front end of vLLM's data-parallel balancer. view: [waiting, running, usage] of each rank
    as last published, plus requests sent since; start: rank where its scan begins.
    """

    def __init__(self, options: VllmDp, num_replicas: int) -> None:
        super().__init__(num_replicas)
        self._clients = options.client_count
        self._newest = options.rule == "0.33"
        self.view: list[Counts] = [[0, 0, 0.0] for _ in range(num_replicas)]
        self.start = num_replicas * options.client_index // options.client_count

    def report(self, loads: Sequence[Load], now_ps: int) -> None:
        self.view = [[load.waiting, load.running, load.kv_usage] for load in loads]

    def _grow(self) -> None:
        super()._grow()
        self.view.append([0, 0, 0.0])

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        if request.rank is not None:
            return Decision(request.rank, "named")
        scores = tuple(self._score(rank) for rank in self.alive)
        ranks, least = len(self.view), min(scores)
        tied = [rank for rank, score in zip(self.alive, scores, strict=True) if score == least]
        first = min(tied, key=lambda rank: (rank - self.start) % ranks)
        return Decision(first, "score", scores)

    def _score(self, rank: int) -> float:
        waiting, running, usage = self.view[rank]
        if not self._newest:
            return waiting * 4 + running
        score: float = max(self._clients * self.open[rank], waiting + running)
        if waiting > 0:
            score += waiting * 6 * max(0.0, usage - 0.5)
        return score

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        super().sent(request, replica, now_ps)
        if request.rank is not None:
            return
        self.view[replica][0] += self._clients
        if self._newest:
            self.start = (self.start + 1) % len(self.view)
