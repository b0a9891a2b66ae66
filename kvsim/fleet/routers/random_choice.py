"""Random routing: every replica with the same probability."""

from kvsim.fleet.routers.options import FleetView, RouterOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router


class RandomChoice(RouterOptions):
    """Any replica (sglang-router 0.3.2 `random`; a Kubernetes service by IP tables)."""

    def build(self, view: FleetView) -> "RandomRouter":
        return RandomRouter(view.num_replicas, seed=view.seed)


class RandomRouter(Router):
    """Draws a replica for each request."""

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        return Decision(self.alive[self.random.randrange(len(self.alive))], "draw")
