"""Several router processes in front of the same replicas; each sees only its own requests."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvsim.fleet.load import Load
from kvsim.fleet.routers.options import FleetView, RouterOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router


class SeveralRouters(Router):
    """Router processes that get requests round robin. Reports of replicas reach all of them."""

    def __init__(self, options: RouterOptions, view: FleetView, count: int) -> None:
        super().__init__(view.num_replicas)
        self.routers = [
            options.process(at, count).build(view._replace(seed=view.seed + at))
            for at in range(count)
        ]
        first = self.routers[0]
        self.needs_first_tokens = first.needs_first_tokens
        self.needs_cache_events = first.needs_cache_events
        self._turn_of: dict[str, int] = {}  # of each open request, the router that it came to
        self._count = 0

    @property
    def cached_tokens(self) -> Callable[[int, RoutedRequest], int] | None:
        """A function that gives the cached tokens of a prompt on each replica, shared by all router
        processes.
        """
        return self.routers[0].cached_tokens

    @cached_tokens.setter
    def cached_tokens(self, ask: Callable[[int, RoutedRequest], int] | None) -> None:
        for router in getattr(self, "routers", ()):
            router.cached_tokens = ask

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        turn = self._count % len(self.routers)
        self._count += 1
        self._turn_of[request.id] = turn
        return self.routers[turn].decide(request, now_ps)

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        super().sent(request, replica, now_ps)
        self.routers[self._turn_of[request.id]].sent(request, replica, now_ps)

    def prefilled(self, id: str, now_ps: int) -> None:
        self.routers[self._turn_of[id]].prefilled(id, now_ps)

    def left(self, id: str, now_ps: int) -> None:
        super().left(id, now_ps)
        self.routers[self._turn_of.pop(id)].left(id, now_ps)

    def report(self, loads: Sequence[Load], now_ps: int) -> None:
        for router in self.routers:
            router.report(list(loads), now_ps)

    def stored(self, replica: int, blocks: Iterable[Any], now_ps: int) -> None:
        named = list(blocks)
        for router in self.routers:
            router.stored(replica, named, now_ps)

    def removed(self, replica: int, blocks: Iterable[Any], now_ps: int) -> None:
        named = list(blocks)
        for router in self.routers:
            router.removed(replica, named, now_ps)

    def joined(self, replica: int) -> None:
        super().joined(replica)
        for router in self.routers:
            router.joined(replica)

    def gone(self, replica: int) -> None:
        super().gone(replica)
        for router in self.routers:
            router.gone(replica)
