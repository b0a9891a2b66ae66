"""Least requests: the replica with the fewest open requests of this router."""

from kvsim.fleet.routers.options import FleetView, TyingOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router


class LeastRequests(TyingOptions):
    """Join the shortest queue, by the router's own counts: exact at once, but only for its own
    traffic.

    ties: at random if not given.
    """

    def build(self, view: FleetView) -> "LeastRequestsRouter":
        return LeastRequestsRouter(view.num_replicas, self.ties or "random", view.seed)


class LeastRequestsRouter(Router):
    """Chooses the replica with the fewest open requests."""

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        tied = self.least_open()
        return Decision(self.pick(tied), "load", tuple(self.open), tied)
