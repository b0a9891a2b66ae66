"""Dynamo's KV router: minimizes a cost of each worker, in blocks to prefill and to hold."""

from collections.abc import Iterable, Sequence
from math import ceil, exp
from typing import NamedTuple, Self

from pydantic import Field, model_validator

from kvsim.fleet.routers.options import FleetView, TyingOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router
from kvsim.fleet.views.block_index import BlockIndex
from kvsim.fleet.views.content import ChainedBlocks
from kvsim.fleet.views.late_blocks import LateBlocks
from kvsim.plumbing.units import PS_PER_MS, PS_PER_S

GUESS_S = 120.0  # how long a guess lasts where workers send no events


class DynamoKv(TyingOptions):
    """The default selector of ai-dynamo-runtime 1.6.1.

    overlap_score_credit: credit for a block that the worker has cached, in blocks to prefill.
    overlap_score_credit_decay: how fast the credit falls as the worker's prefill backlog exceeds
    the smallest. prefill_load_scale: weight of blocks to prefill. decode_active_request_weight:
    blocks that each open request costs. router_temperature: above 0, workers are drawn with chances
    by cost (softmax) instead of the lowest cost. use_kv_events: workers report cached blocks; else
    blocks sent to a worker are assumed cached for 120 s. router_predicted_ttl_secs: lifetime of
    such an assumption in addition to the events. router_assume_kv_reuse: open requests share equal
    blocks. kv_event_lag_ms: how long after a prompt's first token the router hears of its new
    blocks; removed blocks are known at once. ties: at random if not given.
    """

    overlap_score_credit: float = Field(1.0, ge=0)
    overlap_score_credit_decay: float = Field(0.0, ge=0)
    prefill_load_scale: float = Field(1.0, ge=0)
    decode_active_request_weight: float = Field(0.0, ge=0)
    router_temperature: float = Field(0.0, ge=0)
    use_kv_events: bool = True
    router_predicted_ttl_secs: float | None = Field(None, gt=0)
    router_assume_kv_reuse: bool = True
    kv_event_lag_ms: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _lag_of_events(self) -> Self:
        if self.kv_event_lag_ms and not self.use_kv_events:
            raise ValueError("kv_event_lag_ms: there are no events without use_kv_events")
        return self

    def build(self, view: FleetView) -> "DynamoKvRouter":
        return DynamoKvRouter(self, view)


class _Booked(NamedTuple):
    """An open request that the router counts on its worker."""

    replica: int
    blocks: list[int]
    prefill_tokens: int


class DynamoKvRouter(Router):
    """Dynamo's KV router: counts prefill tokens and distinct blocks of each worker, and indexes the
    workers' caches.

    Blocks of open requests are reference-counted by hash, so that equal blocks count once.
    """

    needs_first_tokens = True

    def __init__(self, options: DynamoKv, view: FleetView) -> None:
        super().__init__(view.num_replicas, options.ties or "random", view.seed)
        self._options = options
        self._block = view.block_size
        self.names = ChainedBlocks(view.block_size)
        self.needs_cache_events = options.use_kv_events
        ttl_s = options.router_predicted_ttl_secs
        if ttl_s is None and not options.use_kv_events:
            ttl_s = GUESS_S
        ttl_ps = None if ttl_s is None else round(ttl_s * PS_PER_S)
        self._index = BlockIndex(view.num_replicas, ttl_ps)
        self._prefill = [0] * view.num_replicas
        self._held: list[dict[int, int]] = [{} for _ in range(view.num_replicas)]
        self._booked: dict[str, _Booked] = {}
        self._overlaps: tuple[str, int, dict[int, int]] | None = None  # as decided last
        self._late: LateBlocks | None = None
        if options.kv_event_lag_ms:
            self._late = LateBlocks(view.num_replicas, round(options.kv_event_lag_ms * PS_PER_MS))
        self._private = 0

    def _grow(self) -> None:
        super()._grow()
        self._index.joined()
        self._prefill.append(0)
        self._held.append({})
        if self._late is not None:
            self._late.joined()

    def gone(self, replica: int) -> None:
        super().gone(replica)
        self._index.clear(replica)

    def stored(self, replica: int, blocks: Iterable[int], now_ps: int) -> None:
        self._index.stored(replica, blocks)

    def removed(self, replica: int, blocks: Iterable[int], now_ps: int) -> None:
        self._index.removed(replica, blocks)

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        costs, seen = self.costs(request, now_ps)
        best = min(costs)
        tied = tuple(w for w, cost in zip(self.alive, costs, strict=True) if cost == best)
        if not self._options.router_temperature:
            return Decision(self.pick(tied), "cost", tuple(costs), tied, tuple(seen))
        chances = self.chances(costs)
        chosen = self.random.choices(self.alive, chances)[0]
        return Decision(chosen, "draw", tuple(costs), tied, tuple(seen))

    def chances(self, costs: Sequence[float]) -> list[float]:
        """The probability of each worker under router_temperature."""
        low, high = min(costs), max(costs)
        if low == high:
            return [1 / len(costs)] * len(costs)
        spread = (high - low) * self._options.router_temperature
        weights = [exp(-(cost - low) / spread) for cost in costs]
        return [weight / sum(weights) for weight in weights]

    def costs(
        self, request: RoutedRequest, now_ps: int
    ) -> tuple[list[float], list[tuple[int, int, int, int]]]:
        """The cost of each worker alive, and its terms: cached blocks, tokens to prefill, distinct
        blocks to hold, open requests.
        """
        options, block = self._options, self._block
        blocks = self.names.of(request.content)
        least = min(self._prefill[worker] for worker in self.alive)
        num_blocks = ceil(request.length / block)
        costs, seen = [], []
        overlaps: dict[int, int] = {}
        self._overlaps = request.id, now_ps, overlaps
        for worker in self.alive:
            overlap = overlaps[worker] = self._overlap(worker, request, blocks, now_ps)
            active = self._prefill[worker]
            credit = options.overlap_score_credit
            if options.overlap_score_credit_decay and num_blocks:
                backlog = (active - least) / block / num_blocks
                credit /= 1 + options.overlap_score_credit_decay * backlog
            prefill = max(0.0, (active + request.length) / block - credit * overlap)
            decode = len(self._held[worker]) + self._new_blocks(worker, blocks)
            cost = options.prefill_load_scale * prefill + decode
            costs.append(cost + options.decode_active_request_weight * self.open[worker])
            net = active + max(0, request.length - overlap * block)
            seen.append((overlap, net, decode, self.open[worker]))
        return costs, seen

    def _overlap(self, worker: int, request: RoutedRequest, blocks: list[int], now_ps: int) -> int:
        """Number of leading full blocks of the prompt that the worker is known or assumed to have
        cached.
        """
        found = self._index.overlap(worker, blocks, now_ps)
        if self.cached_tokens is None:
            return found
        cached = self.cached_tokens(worker, request) // self._block
        if self._late is not None:
            cached = self._late.seen(worker, blocks[:cached], now_ps)
        return max(found, cached)

    def _new_blocks(self, worker: int, blocks: list[int]) -> int:
        """Number of these blocks that no open request of the worker holds."""
        if not self._options.router_assume_kv_reuse:
            return len(blocks)
        held = self._held[worker]
        for shared, name in enumerate(blocks):
            if name not in held:
                return len(blocks) - shared
        return 0

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        super().sent(request, replica, now_ps)
        blocks = self.names.of(request.content)
        decided = self._overlaps
        if decided is not None and decided[:2] == (request.id, now_ps):
            overlap = decided[2][replica]
        else:
            overlap = self._overlap(replica, request, blocks, now_ps)
        if self._late is not None and self.cached_tokens is not None:
            known = self.cached_tokens(replica, request) // self._block
            self._late.sent(request.id, replica, blocks[known:])
        tokens = max(0, request.length - overlap * self._block)
        self._index.guess(replica, blocks, now_ps)
        if not self._options.router_assume_kv_reuse:
            self._private -= len(blocks)
            blocks = [self._private + at for at in range(len(blocks))]
        held = self._held[replica]
        for name in blocks:
            held[name] = held.get(name, 0) + 1
        self._prefill[replica] += tokens
        self._booked[request.id] = _Booked(replica, blocks, tokens)

    def prefilled(self, id: str, now_ps: int) -> None:
        booked = self._booked.get(id)
        if self._late is not None:
            self._late.stored(id, now_ps)
        if booked is not None and booked.prefill_tokens:
            self._prefill[booked.replica] -= booked.prefill_tokens
            self._booked[id] = booked._replace(prefill_tokens=0)

    def left(self, id: str, now_ps: int) -> None:
        self.prefilled(id, now_ps)
        super().left(id, now_ps)
        booked = self._booked.pop(id)
        held = self._held[booked.replica]
        for name in booked.blocks:
            held[name] -= 1
            if not held[name]:
                del held[name]
