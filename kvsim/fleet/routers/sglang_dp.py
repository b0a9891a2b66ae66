"""SGLang's controller over the data-parallel ranks of one server (`DPBudget`)."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from kvsim.engine.clock import EngineClock
from kvsim.engine.waves import Waves
from kvsim.fleet.load import Load
from kvsim.fleet.reports import Reports, Written
from kvsim.fleet.routers.options import FleetView, RouterOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router


class SglangDp(RouterOptions):
    """Balances data-parallel ranks as SGLang 0.5.23. method: round robin, the fewest requests, or
    the fewest KV tokens (then requests). The controller reads the ranks' reports when a request
    arrives, at most once in 20 ms. lockstep: the ranks use data-parallel attention
    (enable_dp_attention), and all step together while one has work.
    """

    method: Literal["auto", "round_robin", "total_requests", "total_tokens"] = "auto"
    look_interval_ms: float = Field(20.0, gt=0)
    lockstep: bool = False

    def reports(self, view: FleetView) -> Reports | None:
        return Written(view.num_replicas) if self.method.startswith("total") else None

    @property
    def report_interval_ps(self) -> int | None:
        return 0 if self.method.startswith("total") else None

    def together(self, env: EngineClock) -> Waves | None:
        return Waves(env, 1) if self.lockstep else None

    @property
    def lets_step_together(self) -> bool:
        return self.lockstep

    def build(self, view: FleetView) -> "SglangDpRouter":
        return SglangDpRouter(self.method, round(self.look_interval_ms * 1e9), view.num_replicas)


class SglangDpRouter(Router):
    """SGLang's data-parallel controller. requests, tokens: load of each rank at the last read, plus
    requests sent since.
    """

    def __init__(self, method: str, look_ps: int, num_replicas: int) -> None:
        super().__init__(num_replicas)
        self._method = method
        self._look_ps = look_ps
        self._count = 0
        self.requests = [0] * num_replicas
        self.tokens = [0] * num_replicas
        self._written: Sequence[Load] = ()
        self._taken_ps = [0] * num_replicas
        self._looked_ps = -look_ps

    def report(self, loads: Sequence[Load], now_ps: int) -> None:
        """Store the ranks' current reports; the next read uses them."""
        self._written = loads

    def _grow(self) -> None:
        super()._grow()
        for counts in (self.requests, self.tokens, self._taken_ps):
            counts.append(0)

    def _look(self, now_ps: int) -> None:
        if not self._written or now_ps - self._looked_ps < self._look_ps:
            return
        self._looked_ps = now_ps
        for rank, load in enumerate(self._written):
            if load.written_ps != self._taken_ps[rank]:
                self._taken_ps[rank] = load.written_ps
                self.requests[rank] = load.waiting + load.running
                self.tokens[rank] = load.tokens

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        if request.rank is not None:
            return Decision(request.rank, "named")
        if not self._method.startswith("total"):
            rank = self.alive[self._count % len(self.alive)]
            self._count += 1
            return Decision(rank, "turn")
        self._look(now_ps)
        if self._method == "total_requests":
            best = min(self.alive, key=lambda rank: self.requests[rank])
            return Decision(best, "requests", tuple(self.requests))
        best = min(self.alive, key=lambda rank: (self.tokens[rank], self.requests[rank]))
        return Decision(best, "tokens", tuple(self.tokens))

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        super().sent(request, replica, now_ps)
        if request.rank is None and self._method.startswith("total"):
            self.requests[replica] += 1
            if self._method == "total_tokens":
                self.tokens[replica] += request.length
