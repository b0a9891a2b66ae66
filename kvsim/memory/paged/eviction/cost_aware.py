"""Content that is hit often and expensive to recompute stays cached: Greedy-Dual-Size-Frequency,
with blocks, all of one size, for pages, as vLLM's issue 23641 asks.

Source: Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching
policy", HP Laboratories 98-69, 1998.

The worth of a block is inflation + uses * cost. Inflation is the worth of the last evicted block,
so unused content is evicted in the end. The cost of a token grows with the context that it attends
to. A block cannot be hit without the previous block, so within a sequence no block is worth less
than the later ones.
"""

from collections.abc import Mapping, Sequence

from pydantic import Field

from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.eviction.ranked import Ranked
from kvsim.memory.paged.session_hint import SessionHint


class CostAware(EvictionPolicy):
    """Evict what is cheap to recompute and rarely hit (GDSF). even_context_tokens: the context at
    which attention costs a token as much as all the rest. For a model with P parameters, L layers
    and hidden size d it is about P / (2 * L * d), 30,000 for Llama 3.1 8B.
    """

    even_context_tokens: int = Field(30_000, ge=1, le=1 << 40)

    def build(self, num_blocks: int, block_tokens: int) -> "GreedyDual":
        return GreedyDual(self.even_context_tokens, block_tokens)


class GreedyDual(Ranked):
    """Free blocks ranked by worth: inflation + uses * cost, in tokens of context."""

    def __init__(self, even_context_tokens: int, block_tokens: int) -> None:
        super().__init__()
        self._even = even_context_tokens
        self._block_tokens = block_tokens
        self._inflation = 0
        self._uses: dict[int, int] = {}  # number of hits since it was written
        self._places: dict[int, int] = {}
        self._behind = 0  # highest worth of the blocks behind the next one to return

    def found(self, block: int) -> None:
        self._uses[block] = self._uses.get(block, 0) + 1

    def returning(self, blocks: Sequence[int], places: Sequence[int], *, hint: SessionHint) -> None:
        self._places.update(zip(blocks, places, strict=True))

    def update(self, blocks: Mapping[int, None], /) -> None:  # type: ignore[override]  # no others
        self._behind = 0
        for block in blocks:
            self[block] = None

    def _rank(self, block: int) -> int:
        cost = self._even + self._places[block] * self._block_tokens
        uses = 1 + self._uses.get(block, 0)
        self._behind = max(self._behind, self._inflation + uses * cost)
        return self._behind

    def popitem(self, last: bool = False) -> tuple[int, None]:
        """Evict the block of least worth, and add its worth to the inflation."""
        self._inflation = self.rank_of(self._first())
        return super().popitem(last)

    def forgotten(self, block: int, key: int | None) -> None:
        self._uses.pop(block, None)
