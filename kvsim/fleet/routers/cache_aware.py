"""SGLang's cache_aware policy: the worker with the longest matching prefix, unless the load is
imbalanced.
"""

from struct import pack, unpack

from pydantic import Field

from kvsim.fleet.routers.options import FleetView, TyingOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router, Ties
from kvsim.fleet.views.text_tree import TextTree
from kvsim.plumbing.units import PS_PER_S


class CacheAware(TyingOptions):
    """SGLang's cache_aware policy (sglang-router 0.3.2 and sgl-model-gateway,
    `policies/cache_aware.rs`).

    cache_threshold: share of the text that must match, beyond which the matched worker is chosen.
    balance_abs_threshold, balance_rel_threshold: limits to the difference and the ratio of open
    requests between two workers. Beyond both, the least loaded worker is chosen.
    eviction_interval_secs, max_tree_size: eviction of the tree, in characters for each worker.
    ties: the lowest number if not given (the real order is the registry's, which changes at each
    start).
    """

    cache_threshold: float = Field(0.3, ge=0, le=1)
    balance_abs_threshold: int = Field(64, ge=0)
    balance_rel_threshold: float = Field(1.5, ge=0)
    eviction_interval_secs: float = Field(60, gt=0)
    max_tree_size: int = Field(1 << 26, ge=1)

    def build(self, view: FleetView) -> "CacheAwareRouter":
        return CacheAwareRouter(self, view, self.ties or "lowest")


def single(value: float) -> float:
    """`value` rounded to a 32-bit float, as the router computes."""
    return float(unpack("f", pack("f", value))[0])


class CacheAwareRouter(Router):
    """SGLang's cache_aware router: one radix tree of texts, and open requests as load."""

    def __init__(self, options: CacheAware, view: FleetView, ties: Ties) -> None:
        super().__init__(view.num_replicas, ties, view.seed)
        self.tree = TextTree()
        self._threshold = single(options.cache_threshold)
        self._most_apart = options.balance_abs_threshold
        self._times = single(options.balance_rel_threshold)
        self._interval_ps = round(options.eviction_interval_secs * PS_PER_S)
        self._limit = int(options.max_tree_size / view.characters)
        self._evictions = 0

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        self._evict(now_ps)
        loads = [self.open[each] for each in self.alive]
        scores, fewest, most = tuple(self.open), min(loads), max(loads)
        least = self.least_open()
        if not request.length:
            return Decision(self.pick(least), "empty", scores, least)
        if most - fewest > self._most_apart and single(most) > single(single(fewest) * self._times):
            return Decision(self.pick(least), "imbalance", scores, least)
        matched, worker = self.tree.match(request.content)
        rate = single(matched / request.length)
        if rate > self._threshold:
            if worker in self.alive:
                return Decision(worker, "match", scores, (), (matched,))
            return Decision(self.alive[0], "owner gone", scores, (), (matched,))
        return Decision(self.pick(least), "load", scores, least, (matched,))

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        super().sent(request, replica, now_ps)
        self.tree.insert(request.content, replica)

    def gone(self, replica: int) -> None:
        super().gone(replica)
        self.tree.forget(replica)

    def _evict(self, now_ps: int) -> None:
        """Run the eviction that was due before now_ps; several due between two requests have the
        effect of one.
        """
        due = now_ps // self._interval_ps
        if due > self._evictions:
            self._evictions = due
            self.tree.evict(self._limit)
