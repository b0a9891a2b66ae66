"""A fleet: members on one clock, and the router that requests come to.

At one instant steps end first, replica by replica: memory is free again, the router's counts fall,
loads are reported. Then requests come, in the order of the stream, each routed by what the router
knows by then. Then replicas plan.
"""

from collections.abc import Sequence

from kvsim.engine.arrivals import Left
from kvsim.engine.observer import Observer
from kvsim.engine.replica import RunningReplica, clock, serve_all
from kvsim.fleet.members import AnyPart, FleetMember, MemberHooks
from kvsim.fleet.members import FleetPart as FleetPart
from kvsim.fleet.pool import RoutedPool
from kvsim.fleet.reports import Reports
from kvsim.fleet.routers.router import Router
from kvsim.request import Request, Stream
from kvsim.results.fleet import RoutedTo


class Fleet:
    """Members behind a router, with the requests of a stream on their way.

    reports, regret, observers: see `RoutedPool`. refuse, looks_ps: see `MemberHooks`.
    """

    def __init__(
        self,
        parts: Sequence[AnyPart],
        router: Router,
        stream: Stream,
        *,
        reports: Reports | None = None,
        looks_ps: int | None = None,
        regret: bool = False,
        observers: Sequence[Observer] | None = None,
        progress: Left | None = None,
        refuse: bool = True,
    ) -> None:
        self.router = router
        self.env, self.arrivals = clock(stream, progress)
        self.arrivals.submit = self.submit
        hooks = MemberHooks(self.arrivals.left, refuse=refuse, looks_ps=looks_ps)
        self._pool = RoutedPool(
            self.env, parts, router, hooks, reports=reports, regret=regret, observers=observers
        )
        self.members: list[FleetMember] = self._pool.members

    @property
    def replicas(self) -> list[RunningReplica]:
        """All replicas of all members."""
        return [replica for member in self.members for replica in member.replicas]

    @property
    def routed(self) -> list[RoutedTo]:
        """What the router did, request by request."""
        return self._pool.routed

    def run(self) -> None:
        """Serve all requests; afterwards everyone has left and all pools are empty."""
        serve_all(self.env, self.arrivals, self.replicas)

    def submit(self, request: Request) -> None:
        """`request` comes to the router now, and goes to a member."""
        self.members[self._pool.choose(request)].submit(request)
