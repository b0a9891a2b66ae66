"""A fleet: members (replicas or deployments) on one clock, and the router that sends them requests.

At one instant steps end first, replica by replica: memory is freed, the router's counts fall, loads
are reported. Then requests arrive, in the order of the stream; the router decides by what it knows
at that time. Then replicas schedule their next steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from kvsim.engine.arrivals import Left
from kvsim.engine.clock import EngineClock
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.observer import Observer
from kvsim.engine.ranks import Ranks
from kvsim.engine.replica import Replica, clock, serve_all
from kvsim.engine.waves import Waves
from kvsim.fleet.changes import FleetChanges
from kvsim.fleet.failures import FleetFailure
from kvsim.fleet.members import AnyPart, FleetMember, MemberHooks
from kvsim.fleet.members import FleetPart as FleetPart
from kvsim.fleet.pool import RoutedPool
from kvsim.fleet.reports import Reports
from kvsim.fleet.routers.router import Router
from kvsim.fleet.scaling.options import AutoscalerOptions
from kvsim.request import Request, Stream, TokenRuns
from kvsim.results.routing import RoutedTo


class Fleet:
    """A fleet: its members (replicas or deployments), the router before them, and the requests.

    reports, regret, observer_of, texts: see `RoutedPool`. refuse, report_interval_ps: see
    `MemberHooks`. failures, scaling, like: see `FleetChanges`. together: builds the lockstep of all
    replicas (`Waves` or `Ranks`) on the fleet's clock; None: each replica steps alone.
    """

    def __init__(
        self,
        parts: Sequence[AnyPart],
        router: Router,
        stream: Stream,
        *,
        reports: Reports | None = None,
        report_interval_ps: int | None = None,
        regret: bool = False,
        observer_of: Callable[[int], Observer] | None = None,
        failures: tuple[FleetFailure, ...] = (),
        scaling: AutoscalerOptions | None = None,
        like: int = 0,
        progress: Left | None = None,
        refuse: bool = True,
        together: Callable[[EngineClock], Waves | Ranks | None] = lambda _: None,
        texts: Mapping[str, TokenRuns] | None = None,
    ) -> None:
        self.router = router
        self.env, self.arrivals = clock(stream, progress)
        self.arrivals.submit = self.submit
        self.waves = together(self.env)
        hooks = MemberHooks(
            self._left,
            refuse=refuse,
            report_interval_ps=report_interval_ps,
            waves=self.waves,
            shared=Shared(),
        )
        self._pool = RoutedPool(
            self.env,
            parts,
            router,
            hooks,
            reports=reports,
            regret=regret,
            observer_of=observer_of,
            texts=texts,
        )
        self.members: list[FleetMember] = self._pool.members
        self.changes: FleetChanges | None = None
        if failures or scaling is not None:
            self.changes = FleetChanges(
                self._pool, list(parts), self.arrivals, stream, failures, scaling, like
            )

    @property
    def replicas(self) -> list[Replica]:
        """All replicas of all members."""
        return [replica for member in self.members for replica in member.replicas]

    @property
    def routed(self) -> list[RoutedTo]:
        """The router's decisions, request by request."""
        return self._pool.routed

    def run(self) -> None:
        """Serve all requests. Afterwards all requests have left, and the pools of all but failed
        replicas are empty.
        """
        serve_all(self.env, self.arrivals, self._alive())

    def _alive(self) -> Iterator[Replica]:
        """Yield the replicas that are alive, whenever the iteration takes a step."""
        for replica in self.replicas:
            if not replica.engine.stopped:
                yield replica

    def submit(self, request: Request) -> None:
        """Route `request`, which arrives now, to a member."""
        if self.changes is None or not self.changes.took(request):
            self.members[self._pool.choose(request)].submit(request)

    def _left(self, request: Request) -> None:
        if self.changes is not None:
            self.changes.left()
        self.arrivals.left(request)
