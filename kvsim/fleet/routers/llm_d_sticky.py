"""llm-d's optimized baseline (2026-06): requests stay with servers that have cached the prompt,
until those servers are overloaded.

The prefix-cache-affinity-filter keeps the servers that have cached enough of a prompt. It keeps all
servers if another one would answer much sooner, as estimated from the prompt tokens in flight to
each. The token-load-scorer then takes the server with the fewest uncached tokens in flight,
including those of this prompt.
"""

from collections.abc import Mapping

from pydantic import Field

from kvsim.fleet.routers.options import FleetView, TyingOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router
from kvsim.fleet.views.block_index import LruIndex
from kvsim.fleet.views.content import ChainedBlocks

CHARACTERS = 4  # per token, as the endpoint picker assumes
UNKNOWN_BLOCKS = 31_250  # assumed for a server that reports none


class LlmdSticky(TyingOptions):
    """Options of llm-d's prefix-cache-affinity-filter and token-load-scorer, with their defaults.

    affinity_threshold: share of a prompt's full blocks that a server must have cached for the
    request to stay with it. max_ttft_penalty_ms: the request goes elsewhere if the best server with
    its prompt would answer later than the best other server by more than this; 0: never.
    peak_prefill_tokens_per_s: prompt tokens that a server computes in a second, by which tokens in
    flight become times. The default was measured for Qwen3-32B on two H100s; measure it for other
    servers. exploration_probability: probability that a request ignores the cache. num_blocks,
    block_size: blocks that each server is assumed to have, and tokens of each; by default as the
    servers report. ties: at random if not given.
    """

    affinity_threshold: float = Field(0.8, gt=0, le=1)
    max_ttft_penalty_ms: float = Field(18_000.0, ge=0)
    peak_prefill_tokens_per_s: float = Field(15_928.0, gt=0)
    exploration_probability: float = Field(0.0, ge=0, le=1)
    block_size: int | None = Field(None, ge=1)
    num_blocks: int | None = Field(None, ge=1)

    def build(self, view: FleetView) -> "LlmdStickyRouter":
        return LlmdStickyRouter(self, view)


class LlmdStickyRouter(Router):
    """Counts the uncached prompt tokens in flight to each server, and indexes the prompts that it
    sent to each.
    """

    needs_first_tokens = True

    def __init__(self, options: LlmdSticky, view: FleetView) -> None:
        super().__init__(view.num_replicas, options.ties or "random", view.seed)
        self._options = options
        tokens = options.block_size or view.block_size
        self._per_unit = view.characters / CHARACTERS  # tokens
        self._block = max(1, round(tokens / self._per_unit))
        self._names = ChainedBlocks(self._block)
        capacity = options.num_blocks or view.num_blocks or UNKNOWN_BLOCKS
        self._index = LruIndex(view.num_replicas, capacity)
        self._tokens = [0.0] * view.num_replicas
        self._booked: dict[str, tuple[int, float]] = {}

    def _grow(self) -> None:
        super()._grow()
        self._index.joined()
        self._tokens.append(0.0)

    def gone(self, replica: int) -> None:
        super().gone(replica)
        self._index.clear(replica)

    def _uncached(self, request: RoutedRequest, found: Mapping[int, int], replica: int) -> float:
        """Tokens of the prompt that the server would have to compute."""
        return (request.length - found.get(replica, 0) * self._block) * self._per_unit

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        options, alive = self._options, self.alive
        blocks = self._names.of(request.content)
        found = self._index.matched(blocks)
        share = {each: found.get(each, 0) / len(blocks) if blocks else 0.0 for each in alive}
        sticky = [each for each in alive if share[each] >= options.affinity_threshold]
        kept, why = alive, "token-load"
        explores = options.exploration_probability
        if explores and self.random.random() < explores:
            why = "exploration"
        elif sticky:
            kept, why = (alive, "saturated") if self._saturated(sticky) else (sticky, "affinity")
        costs = [self._tokens[each] + self._uncached(request, found, each) for each in kept]
        best = min(costs)
        tied = tuple(each for each, cost in zip(kept, costs, strict=True) if cost == best)
        scores = [self._tokens[each] + self._uncached(request, found, each) for each in alive]
        seen = tuple((share[each], self._tokens[each]) for each in alive)
        return Decision(self.pick(tied), why, tuple(scores), tied, seen)

    def _saturated(self, sticky: list[int]) -> bool:
        """Whether the best server outside `sticky` would answer sooner than the best of `sticky` by
        more than the allowed penalty.
        """
        options = self._options
        others = [self._tokens[each] for each in self.alive if each not in sticky]
        if not others or not options.max_ttft_penalty_ms:
            return False
        more = min(self._tokens[each] for each in sticky) - min(others)
        return 1000 * more / options.peak_prefill_tokens_per_s > options.max_ttft_penalty_ms

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        super().sent(request, replica, now_ps)
        blocks = self._names.of(request.content)
        tokens = self._uncached(request, self._index.matched(blocks), replica)
        self._booked[request.id] = replica, tokens
        self._tokens[replica] += tokens
        self._index.add(replica, blocks)

    def prefilled(self, id: str, now_ps: int) -> None:
        replica, tokens = self._booked.pop(id, (0, 0.0))
        self._tokens[replica] -= tokens

    def left(self, id: str, now_ps: int) -> None:
        self.prefilled(id, now_ps)
        super().left(id, now_ps)
