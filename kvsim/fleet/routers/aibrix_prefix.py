"""AIBrix's prefix-cache routing: the longest prefix match, among pods that are not overloaded."""

from statistics import fmean, pstdev

from pydantic import Field

from kvsim.fleet.routers.options import FleetView, TyingOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router
from kvsim.fleet.views.content import ChainedBlocks


class AibrixPrefix(TyingOptions):
    """AIBrix's prefix-cache policy (AIBrix, 2026-08-22). imbalance: if running requests of pods
    differ by more, only the pods with the fewest are candidates.

    block_characters: characters of text in a block. standard_deviations: a pod with a match is
    skipped if its running requests exceed the mean by more than this many. ties: at random if not
    given.
    """

    imbalance: int = Field(8, ge=0)
    block_characters: int = Field(4, ge=1)
    standard_deviations: float = Field(1.0, ge=0)

    def build(self, view: FleetView) -> "AibrixPrefixRouter":
        return AibrixPrefixRouter(self, view)


class AibrixPrefixRouter(Router):
    """AIBrix's prefix-cache router; counts its own open requests as running."""

    def __init__(self, options: AibrixPrefix, view: FleetView) -> None:
        super().__init__(view.num_replicas, options.ties or "random", view.seed)
        self._options = options
        self._names = ChainedBlocks(max(1, round(options.block_characters / view.characters)))
        self._holders: dict[int, set[int]] = {}

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        running = {each: self.open[each] for each in self.alive}
        scores, least = tuple(self.open), self.least_open()
        fewest, most = min(running.values()), max(running.values())
        candidates = set(least if most - fewest > self._options.imbalance else self.alive)
        limit = fmean(running.values())
        limit += self._options.standard_deviations * pstdev(running.values())
        matches = self._matches(request, candidates)
        tiers = sorted({(-matches[each], running[each]) for each in matches})
        for match, count in tiers:
            if count <= limit:
                same = sorted(e for e in matches if (-matches[e], running[e]) == (match, count))
                return Decision(self.pick(same), "match", scores, tuple(same), (-match,))
        return Decision(self.pick(least), "load", scores, least)

    def _matches(self, request: RoutedRequest, candidates: set[int]) -> dict[int, int]:
        """Number of leading prompt blocks that were sent to each candidate before, without
        candidates that have none.
        """
        found: dict[int, int] = {}
        left = candidates
        for block in self._names.of(request.content):
            left = left & self._holders.get(block, set())
            if not left:
                break
            for each in left:
                found[each] = found.get(each, 0) + 1
        return found

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        super().sent(request, replica, now_ps)
        for block in self._names.of(request.content):
            self._holders.setdefault(block, set()).add(replica)

    def gone(self, replica: int) -> None:
        super().gone(replica)
        for holders in self._holders.values():
            holders.discard(replica)
