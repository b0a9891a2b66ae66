"""A schedule recorded from data-parallel attention ranks of SGLang in lockstep."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from evidence.schedule.case import by_arrival, check_of_two_engines
from evidence.schedule.rows import Row
from evidence.schedule.sglang.request import SglangRequest
from evidence.schedule.sglang.schedule import SglangSchedule
from evidence.schedule.sglang_dp.rows import AttentionRankRows
from kvsim.engine.arrivals import Arrivals
from kvsim.engine.clock import EngineClock
from kvsim.engine.engine import Engine
from kvsim.engine.replica import ReplicaSpec, serving
from kvsim.engine.waves import Waves
from kvsim.readers.sglang.args import DP_CONSERVATIVENESS
from kvsim.request import Request, Stream


class RankRequest(SglangRequest):
    """A recorded request. rank: index of the rank that computes it."""

    rank: int = Field(ge=0, le=63)


class RanksCase(SglangSchedule):
    """A schedule of `ranks` data-parallel ranks of one server. engine: settings of each rank."""

    ranks: int = Field(ge=1, le=64)
    requests: tuple[RankRequest, ...]

    @model_validator(mode="after")
    def _ranks_are_there(self) -> "RanksCase":
        check_of_two_engines(self.requests)
        if any(request.rank >= self.ranks for request in self.requests):
            raise ValueError("a request's rank must be below ranks")
        return self

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        return super().recognises(table) and "ranks" in table

    @classmethod
    def rows_of(cls, expectation: Mapping[str, Any]) -> Any:
        steps = expectation.get("steps")
        if not isinstance(steps, Mapping):
            return super().rows_of(expectation)
        return [{"side": rank, **row} for rank, rows in steps.items() for row in rows]

    def replica_spec(self) -> ReplicaSpec:
        """Specification of one rank. SGLang lowers schedule_conservativeness for data-parallel
        ranks.
        """
        lowered = DP_CONSERVATIVENESS * self.engine.schedule_conservativeness
        update = {"schedule_conservativeness": lowered}
        return self.engine.model_copy(update=update).replica_spec()

    def replayed(self, *, stall_once: bool) -> list[Row]:
        env = EngineClock()
        timed, _ = by_arrival(self.sent)
        arrivals = Arrivals(env, Stream(tuple(timed)), routed=True)
        waves, spec = Waves(env, 1), self.replica_spec()
        observers = [AttentionRankRows() for _ in range(self.ranks)]
        engines: list[Engine] = [
            serving(
                env,
                spec,
                self.step_time(),
                on_left=arrivals.left,
                observer=observer,
                refuse=False,
                routed=True,
                waves=waves,
            ).engine
            for observer in observers
        ]
        ranks = {request.id: request.rank for request in self.requests}

        def submit(request: Request) -> None:
            engines[ranks[request.id]].submit(request)

        arrivals.submit = submit
        env.run()
        return [
            {"side": f"rank{number}", **row}
            for number, observer in enumerate(observers)
            for row in observer.rows
        ]
