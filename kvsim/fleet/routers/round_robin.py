"""Round robin: each replica in order, whatever its load."""

from kvsim.fleet.routers.options import FleetView, RouterOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router


class RoundRobin(RouterOptions):
    """Each replica in order (sglang-router 0.3.2 `round_robin`, production-stack `roundrobin`)."""

    def build(self, view: FleetView) -> "RoundRobinRouter":
        return RoundRobinRouter(view.num_replicas)


class RoundRobinRouter(Router):
    """Round robin over the replicas that are alive."""

    _count = 0

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        replica = self.alive[self._count % len(self.alive)]
        self._count += 1
        return Decision(replica, "turn")
