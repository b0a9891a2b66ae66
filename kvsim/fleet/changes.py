"""Replicas that fail, start and are removed while a fleet serves."""

from collections import Counter
from collections.abc import Callable
from functools import partial

from kvsim.engine.arrivals import Arrivals
from kvsim.engine.moments import ROUTED_ARRIVALS, STEP_ENDS, call_at
from kvsim.engine.record import free_share
from kvsim.fleet.failures import FleetFailure
from kvsim.fleet.load import Load
from kvsim.fleet.members import AnyPart, SingleReplica
from kvsim.fleet.pool import RoutedPool
from kvsim.fleet.scaling.autoscaler import Autoscaler
from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Request, Stream
from kvsim.results.lifetimes import Lifetime

NOBODY = "no replica is left to serve it, and none will start"


class FleetChanges:
    """Applies failures and an autoscaler to the members of a fleet.

    A replica that fails does so at the end of the current step. Its unfinished requests are sent to
    other replicas, in their original order. A replica that is removed gets no more requests and
    ends with its last one. like: index of the part that new replicas are built from. num_lost:
    number of requests of each member that were sent again elsewhere. num_refused: number of
    requests that found no replica.
    """

    def __init__(
        self,
        pool: RoutedPool,
        parts: list[AnyPart],
        arrivals: Arrivals,
        stream: Stream,
        failures: tuple[FleetFailure, ...],
        scaling: AutoscalerOptions | None,
        like: int,
    ) -> None:
        self._pool, self._router, self._env = pool, pool.router, pool.env
        self._parts, self._arrivals, self._like = parts, arrivals, like
        self._requests = {each.id: each for each in stream.requests} if failures else {}
        self._lives = [Lifetime(number) for number in range(len(parts))]
        self._given_up: list[Lifetime] = []
        self._starting: list[list[Lifetime]] = []  # each alone in its list, empty once given up
        self._removing: set[int] = set()
        self._held: list[tuple[Request, int]] = []  # while no replica takes requests
        self._came: dict[str, int] = {}  # of requests that were moved
        self.num_lost: Counter[int] = Counter()
        self.num_refused = 0
        for failure in failures:
            call_at(self._env, round(failure.at_s * PS_PER_S), STEP_ENDS, self._fails(failure))
        self._scaling = scaling
        if scaling is not None:
            self._autoscaler = Autoscaler(scaling, len(parts))
            self._interval_ps = round(scaling.interval_s * PS_PER_S)
            self._seen = 0
            call_at(self._env, self._interval_ps, ROUTED_ARRIVALS, self._look)

    @property
    def lives(self) -> list[Lifetime]:
        """Lifetimes of all members by number, then of replicas removed before they had started."""
        return [*self._lives, *self._given_up]

    def took(self, request: Request) -> bool:
        """Whether no replica is alive for the arriving `request`, which is then queued for one that
        starts, or refused.
        """
        if self._router.alive:
            return False
        self._keep(request, int(self._env.now))
        return True

    # --- starts ---------------------------------------------------------------------------------

    def _start(self, like: int, ready_ps: int) -> None:
        start = [Lifetime(like, int(self._env.now), None)]
        self._starting.append(start)
        call_at(self._env, ready_ps, ROUTED_ARRIVALS, lambda _: self._ready(start))

    def _ready(self, start: list[Lifetime]) -> None:
        if not start or not self._arrivals.missing:
            return
        self._starting.remove(start)
        life = start[0]
        self._lives.append(life._replace(ready_ps=int(self._env.now)))
        self._pool.add(self._parts[life.like])
        held, self._held = self._held, []
        for request, came_ps in held:
            self._again(request, came_ps)

    # --- failures -------------------------------------------------------------------------------

    def _fails(self, failure: FleetFailure) -> Callable[[object], None]:
        def fail(_: object) -> None:
            number = failure.replica
            if not self._arrivals.missing or self._lives[number].ended is not None:
                return  # who has been removed cannot die
            self._router.gone(number)
            self._removing.discard(number)
            self._end(number, "died")
            engine = self._member(number).replica.engine
            callbacks = engine.process.callbacks
            assert callbacks is not None  # it runs until it is stopped
            callbacks.append(partial(self._died, number))
            engine.stop()
            if failure.restart_s is not None:
                ready_ps = int(self._env.now) + round(failure.restart_s * PS_PER_S)
                self._start(number, ready_ps)

        return fail

    def _died(self, number: int, _: object) -> None:
        """After a failed replica's last step: send its unfinished requests to other members, once
        all steps that end now have ended.
        """
        self._lives[number] = self._lives[number]._replace(end_ps=int(self._env.now))
        call_at(self._env, int(self._env.now), ROUTED_ARRIVALS, lambda _: self._move(number))

    def _move(self, number: int) -> None:
        ids = self._member(number).replica.engine.intake.unfinished
        wanted = set(ids) - self._came.keys()
        for routed in reversed(self._pool.routed):
            if not wanted:
                break
            if routed.id in wanted:
                wanted.remove(routed.id)
                self._came[routed.id] = routed.time_ps
        for moved in ids:
            self._router.left(moved, int(self._env.now))
        self.num_lost[number] = len(ids)
        for moved in ids:
            self._again(self._requests[moved], self._came[moved])

    def _again(self, request: Request, came_ps: int) -> None:
        """Route an unfinished `request` of a failed replica again; it arrived at came_ps."""
        if not self._router.alive:
            self._keep(request, came_ps)
            return
        number = self._pool.choose(request)
        self._member(number).replica.engine.submit(request, came_ps)

    def _keep(self, request: Request, came_ps: int) -> None:
        if self._starting:
            self._held.append((request, came_ps))
            return
        self.num_refused += 1
        recorder = self._member(0).replica.recorder
        recorder.arrived(came_ps)
        recorder.refused(request, int(self._env.now), NOBODY)
        self._arrivals.left(request)

    def _member(self, number: int) -> SingleReplica:
        member = self._pool.members[number]
        assert isinstance(member, SingleReplica)  # others are refused where failures are read
        return member

    # --- autoscaling ----------------------------------------------------------------------------

    def _look(self, _: object) -> None:
        """One evaluation of the autoscaler: read the load, start or remove replicas, and schedule
        the next evaluation.
        """
        scaling = self._scaling
        assert scaling is not None
        if not self._arrivals.missing:
            return
        now_ps, alive = int(self._env.now), self._router.alive
        come = len(self._pool.routed) - self.num_lost.total() + len(self._held)
        loads = [load for number in alive for load in self._loads(number)]
        state = FleetState(loads, come - self._seen, scaling.interval_s)
        self._seen = come
        replicas = len(alive) + len(self._starting)
        wanted = self._autoscaler.wanted(state, replicas, now_ps)
        for _ in range(wanted - replicas):
            self._start(self._like, now_ps + round(scaling.start_up_s * PS_PER_S))
        for _ in range(replicas - wanted):
            self._remove()
        call_at(self._env, now_ps + self._interval_ps, ROUTED_ARRIVALS, self._look)

    def _loads(self, number: int) -> list[Load]:
        schedulers = [each.scheduler for each in self._pool.members[number].replicas]
        return [
            Load(len(each.waiting), len(each.running), 1 - free_share(each.allocator))
            for each in schedulers
        ]

    def _remove(self) -> None:
        """Remove the newest replica: one that is still starting, else the one with the highest
        number.
        """
        if self._starting:
            start = self._starting.pop()
            now_ps = int(self._env.now)
            self._given_up.append(start.pop()._replace(end_ps=now_ps, ended="removed"))
            return
        number = self._router.alive[-1]
        self._router.gone(number)
        self._removing.add(number)
        self.left()

    def left(self) -> None:
        """Requests may have left: end the removed replicas that have no requests any more."""
        for number in [each for each in self._removing if not self._router.open[each]]:
            self._removing.remove(number)
            self._end(number, "removed")

    def _end(self, number: int, ended: str) -> None:
        now_ps = int(self._env.now)
        self._lives[number] = self._lives[number]._replace(end_ps=now_ps, ended=ended)
