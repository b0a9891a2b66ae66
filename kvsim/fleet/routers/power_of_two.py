"""Power of two choices: the lower of two replicas drawn at random."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from kvsim.fleet.load import Load
from kvsim.fleet.reports import Reports, Scraped
from kvsim.fleet.routers.options import FleetView, RouterOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS


class PowerOfTwo(RouterOptions):
    """Power of two choices. load: the measure to compare. `reported`: token loads as sglang-router
    0.3.2 polls them. Without a report it compares open requests, which that policy always counts as
    0, so that chance decides. `open`: the router's own open requests. The first drawn wins a tie.
    report_interval_ms: time between two polls.
    """

    load: Literal["reported", "open"] = "reported"
    report_interval_ms: float = Field(30_000.0, gt=0)

    def reports(self, view: FleetView) -> Reports | None:
        return (
            None
            if self.report_interval_ps is None
            else Scraped(view.num_replicas, self.report_interval_ps)
        )

    @property
    def report_interval_ps(self) -> int | None:
        return round(self.report_interval_ms * PS_PER_MS) if self.load == "reported" else None

    def build(self, view: FleetView) -> "PowerOfTwoRouter":
        if view.num_replicas < 2:
            raise InputError(
                "power-of-two needs two replicas to compare",
                where="fleet.router",
                value=view.num_replicas,
                limit="2 or more",
                remedy='add replicas, or use kind = "round-robin"',
            )
        return PowerOfTwoRouter(view.num_replicas, view.seed, reported=self.load == "reported")


class PowerOfTwoRouter(Router):
    """Draws two different replicas, and takes the less loaded one."""

    def __init__(self, num_replicas: int, seed: int, *, reported: bool) -> None:
        super().__init__(num_replicas, seed=seed)
        self._reported = reported
        self._tokens: list[int | None] = [None] * num_replicas

    def report(self, loads: Sequence[Load], now_ps: int) -> None:
        self._tokens = [load.tokens for load in loads]

    def _grow(self) -> None:
        super()._grow()
        self._tokens.append(None)

    def lower(self, first: int, second: int) -> int:
        """The less loaded of two drawn replicas."""
        if not self._reported:
            return second if self.open[second] < self.open[first] else first
        one, other = self._tokens[first], self._tokens[second]
        if one is None or other is None:
            return first
        return second if other < one else first

    def probabilities(self) -> list[float]:
        """The probability of each replica alive to be chosen now."""
        alive = self.alive
        chances = dict.fromkeys(alive, 0.0)
        for one in alive:
            for other in alive:
                if one != other:
                    chances[self.lower(one, other)] += 1 / (len(alive) * (len(alive) - 1))
        return list(chances.values())

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        if len(self.alive) < 2:
            return Decision(self.alive[0], "only")
        first, second = self.random.sample(self.alive, 2)
        return Decision(self.lower(first, second), "lower of two", tied=(first, second))
