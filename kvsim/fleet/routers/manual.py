"""SGLang's manual policy: a conversation stays with the replica of its first request."""

from typing import Literal

from kvsim.fleet.routers.options import FleetView, TyingOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router


class Manual(TyingOptions):
    """SGLang's manual policy (sglang-router's `manual`). assignment: replica for the first request
    of a conversation: at random, to the fewest open requests (`min_load`), or to the fewest
    conversations (`min_group`).

    Requests without a conversation are sent to a random replica. A conversation on a failed replica
    is assigned to another one. The real policy is keyed by a header; kvsim uses the conversation.
    ties: at random if not given.
    """

    assignment: Literal["random", "min_load", "min_group"] = "random"

    def build(self, view: FleetView) -> "ManualRouter":
        return ManualRouter(self, view)


class ManualRouter(Router):
    """Remembers the replica of every conversation. groups: number of conversations of each
    replica.
    """

    def __init__(self, options: Manual, view: FleetView) -> None:
        super().__init__(view.num_replicas, options.ties or "random", view.seed)
        self._assignment = options.assignment
        self._replica_with: dict[str, int] = {}
        self.groups = [0] * view.num_replicas

    def _grow(self) -> None:
        super()._grow()
        self.groups.append(0)

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        if request.session is None:
            return Decision(self.random.choice(self.alive), "no session")
        known = self._replica_with.get(request.session)
        if known is not None and known in self.alive:
            return Decision(known, "session")
        if self._assignment == "random":
            return Decision(self.random.choice(self.alive), "new session")
        counts = self.open if self._assignment == "min_load" else self.groups
        fewest = min(counts[each] for each in self.alive)
        tied = tuple(each for each in self.alive if counts[each] == fewest)
        return Decision(self.pick(tied), "new session", tuple(counts), tied)

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        super().sent(request, replica, now_ps)
        if request.session is not None:
            before = self._replica_with.get(request.session)
            if before != replica:
                self.groups[replica] += 1
                if before is not None:
                    self.groups[before] -= 1
            self._replica_with[request.session] = replica
