"""production-stack's prefixaware: a trie of text chunks that is never evicted; load is ignored."""

from pydantic import Field

from kvsim.fleet.routers.options import FleetView, TyingOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router
from kvsim.fleet.views.content import ChainedBlocks

CHUNK_CHARACTERS = 128


class PrefixAware(TyingOptions):
    """production-stack's prefixaware (router of 2026-08-05). prefix_min_match_length: with a
    shorter match, in characters, the replica with the fewest open requests is chosen. The real
    router counts requests a second instead. ties: at random if not given.
    """

    prefix_min_match_length: int = Field(0, ge=0)

    def build(self, view: FleetView) -> "PrefixAwareRouter":
        return PrefixAwareRouter(self, view)


class PrefixAwareRouter(Router):
    """Chooses at random among the replicas that were sent the longest matching prefix; any replica
    for a prompt without a match.
    """

    def __init__(self, options: PrefixAware, view: FleetView) -> None:
        super().__init__(view.num_replicas, options.ties or "random", view.seed)
        self._chunk = max(1, round(CHUNK_CHARACTERS / view.characters))
        self._least = options.prefix_min_match_length / view.characters
        self._names = ChainedBlocks(self._chunk, partial=True)
        self._holders: dict[int, set[int]] = {}

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        left, matched = set(self.alive), 0
        for chunk in self._names.of(request.content):
            both = left & self._holders.get(chunk, set())
            if not both:
                break
            left, matched = both, matched + self._chunk
        if matched < self._least:
            tied = self.least_open()
            return Decision(self.pick(tied), "load", tuple(self.open), tied, (matched,))
        tied = tuple(sorted(left))
        return Decision(self.pick(tied), "prefix" if matched else "cold", (), tied, (matched,))

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        super().sent(request, replica, now_ps)
        for chunk in self._names.of(request.content):
            self._holders.setdefault(chunk, set()).add(replica)

    def gone(self, replica: int) -> None:
        super().gone(replica)
        for holders in self._holders.values():
            holders.discard(replica)
