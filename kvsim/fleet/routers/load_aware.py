"""production-stack's loadaware: cached share of the prompt, minus a penalty for load above the
mean.
"""

from collections.abc import Iterable

from pydantic import Field

from kvsim.fleet.routers.options import FleetView, TyingOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router
from kvsim.fleet.views.block_index import BlockIndex
from kvsim.fleet.views.content import ChainedBlocks


class LoadAware(TyingOptions):
    """argmax of `matched / prompt - beta * (load - mean) / max(1, mean)` (production-stack#1035,
    2026-08): `matched` are the prompt tokens in the replica's prefix cache, `load` its open
    requests.

    beta: weight of the load; 0 considers only the cache. ties: the lowest number if not given.
    """

    beta: float = Field(1.0, ge=0)

    def build(self, view: FleetView) -> "LoadAwareRouter":
        return LoadAwareRouter(self, view)


class LoadAwareRouter(Router):
    """Scores replicas by their load and the prefix they have cached, from cache events."""

    needs_cache_events = True

    def __init__(self, options: LoadAware, view: FleetView) -> None:
        super().__init__(view.num_replicas, options.ties or "lowest", view.seed)
        self._beta = options.beta
        self._block = view.block_size
        self.names = ChainedBlocks(view.block_size)
        self._index = BlockIndex(view.num_replicas)

    def _grow(self) -> None:
        super()._grow()
        self._index.joined()

    def gone(self, replica: int) -> None:
        super().gone(replica)
        self._index.clear(replica)

    def stored(self, replica: int, blocks: Iterable[int], now_ps: int) -> None:
        self._index.stored(replica, blocks)

    def removed(self, replica: int, blocks: Iterable[int], now_ps: int) -> None:
        self._index.removed(replica, blocks)

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        blocks = self.names.of(request.content)
        mean = sum(self.open[each] for each in self.alive) / len(self.alive)
        scores, seen = [], []
        for each in self.alive:
            if self.cached_tokens is None:
                matched = self._index.overlap(each, blocks, now_ps) * self._block
            else:
                matched = self.cached_tokens(each, request)
            share = matched / request.length if request.length else 0.0
            scores.append(share - self._beta * (self.open[each] - mean) / max(1.0, mean))
            seen.append((matched, self.open[each]))
        best = max(scores)
        tied = tuple(e for e, score in zip(self.alive, scores, strict=True) if score == best)
        return Decision(self.pick(tied), "score", tuple(scores), tied, tuple(seen))
