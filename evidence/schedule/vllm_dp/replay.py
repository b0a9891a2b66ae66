"""Replay of vLLM data-parallel ranks that compute each forward together."""

from collections.abc import Callable, Mapping, Sequence

from evidence.schedule.rows import Row, Rows
from evidence.schedule.vllm_dp.rows import RankRows, forward_rows
from kvsim.engine.arrivals import Arrivals
from kvsim.engine.clock import EngineClock
from kvsim.engine.engine import Engine
from kvsim.engine.ranks import Ranks
from kvsim.engine.replica import ReplicaSpec, serving
from kvsim.request import Request, Stream
from kvsim.results.recorder import Recorder
from kvsim.step_time.form import StepTime


class RanksReplay:
    """The simulated ranks of one server on one clock.

    ranks: for each rank its specification, and the observer that writes its rows. rank_of: rank
    index by request id. sync_steps: iterations between two agreements of the ranks.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        rank_of: Mapping[str, int],
        ranks: Sequence[tuple[ReplicaSpec, Rows]],
        step_time: Callable[[], StepTime],
        sync_steps: int,
    ) -> None:
        env = self._env = EngineClock()
        arrivals = Arrivals(env, Stream(tuple(requests)), routed=True)
        arrivals.submit = self._submit
        self._rank_of = rank_of
        together = self._together = Ranks(env, sync_steps)
        together.forwards = []
        self._engines: list[Engine] = []
        self._rows: list[RankRows] = []
        for spec, inner in ranks:
            rows = RankRows(inner, together)
            made = serving(
                env,
                spec,
                step_time(),
                on_left=arrivals.left,
                recorder=Recorder(spec.capacity_bytes),
                observer=rows,
                refuse=False,
                routed=True,
                waves=together,
            )
            self._engines.append(made.engine)
            self._rows.append(rows)

    def _submit(self, request: Request) -> None:
        self._engines[self._rank_of[request.id]].submit(request)

    def rows(self) -> list[Row]:
        """Run the simulation; returns the rows of all ranks, then those of the forwards."""
        self._env.run()
        found = [
            {"side": f"rank {number}", **row}
            for number, rows in enumerate(self._rows)
            for row in rows.rows()
        ]
        return found + forward_rows(self._together)
