"""llm-d's endpoint picker: weighted scores of queue, KV use and prefix (2026-05)."""

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from kvsim.fleet.load import Load
from kvsim.fleet.reports import Reports, Scraped
from kvsim.fleet.routers.options import FleetView, TyingOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router
from kvsim.fleet.views.block_index import LruIndex
from kvsim.fleet.views.content import ChainedBlocks
from kvsim.plumbing.units import PS_PER_MS

CHARACTERS = 4  # of a token, as the plugin takes it
MOST_BLOCKS = 256
UNKNOWN_BLOCKS = 31_250  # of a server that reports none
FULL_QUEUE = 128  # requests waiting where the load-aware scorer gives nothing


class LlmdEpp(TyingOptions):
    """Weights of the scorers. A scorer gives each server 0 to 1.

    `queue` prefers the fewest waiting, `kv` the largest free share of the pool, and `prefix` the
    most prompt blocks sent there before. `active_request` prefers the fewest open requests of the
    picker. `load_aware` gives 0.5 with an empty queue.

    picker: the highest total score, a random server, or a random server weighted by score.
    block_size: tokens in a block, of four characters each; num_blocks: blocks that each server is
    assumed to hold; if not given, as the servers report. scrape_interval_ms: time between two
    scrapes of the servers' metrics. ties: at random if not given.
    """

    queue: float = Field(2.0, ge=0)
    kv: float = Field(2.0, ge=0)
    prefix: float = Field(3.0, ge=0)
    load_aware: float = Field(0.0, ge=0)
    active_request: float = Field(0.0, ge=0)
    picker: Literal["max-score", "random", "weighted-random"] = "max-score"
    block_size: int | None = Field(None, ge=1)
    num_blocks: int | None = Field(None, ge=1)
    scrape_interval_ms: float = Field(50.0, gt=0)

    def reports(self, view: FleetView) -> Reports:
        return Scraped(view.num_replicas, self.report_interval_ps)

    @property
    def report_interval_ps(self) -> int:
        return round(self.scrape_interval_ms * PS_PER_MS)

    def build(self, view: FleetView) -> "LlmdEppRouter":
        return LlmdEppRouter(self, view)


class LlmdEppRouter(Router):
    """llm-d's endpoint picker: scores each server by the metrics scraped last and by prompts sent
    before.
    """

    def __init__(self, options: LlmdEpp, view: FleetView) -> None:
        super().__init__(view.num_replicas, options.ties or "random", view.seed)
        self._options = options
        tokens = options.block_size or view.block_size
        units = max(1, round(tokens * CHARACTERS / view.characters))
        self._block = units
        self._names = ChainedBlocks(units, partial=True, most=MOST_BLOCKS)
        capacity = options.num_blocks or view.num_blocks or UNKNOWN_BLOCKS
        self._index = LruIndex(view.num_replicas, capacity)
        self._loads: Sequence[Load] = [Load()] * view.num_replicas

    def report(self, loads: Sequence[Load], now_ps: int) -> None:
        self._loads = loads

    def _grow(self) -> None:
        super()._grow()
        self._loads = [*self._loads, Load()]
        self._index.joined()

    def gone(self, replica: int) -> None:
        super().gone(replica)
        self._index.clear(replica)

    def _blocks(self, request: RoutedRequest) -> list[int]:
        return self._names.of(request.content) if request.length >= self._block else []

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        options, alive = self._options, self.alive
        waiting = [self._loads[each].waiting for each in alive]
        low, high = min(waiting), max(waiting)
        blocks = self._blocks(request)
        found = self._index.matched(blocks)
        busiest = max(self.open[each] for each in alive)
        weights = options.queue, options.kv, options.prefix
        totals, seen = [], []
        for each, queue in zip(alive, waiting, strict=True):
            scores = (
                (high - queue) / (high - low) if high > low else 1.0,
                1 - self._loads[each].kv_usage,
                found.get(each, 0) / len(blocks) if blocks else 0.0,
            )
            total = 0.0
            for weight, score in zip(weights, scores, strict=True):
                total += weight * min(1.0, max(0.0, score))
            if options.load_aware:
                total += options.load_aware * 0.5 * max(0.0, 1 - queue / FULL_QUEUE)
            if options.active_request:
                idle = (busiest - self.open[each]) / busiest if busiest else 1.0
                total += options.active_request * idle
            totals.append(total)
            seen.append(scores)
        best = max(totals)
        tied = tuple(each for each, total in zip(alive, totals, strict=True) if total == best)
        pick: dict[str, Callable[[], int]] = {
            "max-score": lambda: self.pick(tied),
            "random": lambda: self.random.choice(alive),
            "weighted-random": lambda: self.random.choices(
                alive, totals if best > 0 else [1.0] * len(alive)
            )[0],
        }
        return Decision(pick[options.picker](), options.picker, tuple(totals), tied, tuple(seen))

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        super().sent(request, replica, now_ps)
        self._index.add(replica, self._blocks(request))
