"""Attention that caches a key and a value for each KV head."""

from dataclasses import dataclass

from kvsim.model.weights import Weights


@dataclass(frozen=True, slots=True)
class Attention:
    """Multi-head, grouped-query or multi-query attention, perhaps over a sliding window.

    window_tokens: number of newest tokens that a query sees, itself included; None: all.
    output_gate: the query projection also gives a gate for the output. v_head_dim: head size of
    values; None: as keys. shares_cache: the layer reads the cache of an earlier layer, has none and
    only projects queries (Gemma 3n and 4). shares_weights: its projections are counted elsewhere,
    once for several layers (Zamba 2). chunk_tokens: length of the chunks; a query sees the tokens
    of its own chunk (Llama 4); None: all. index_heads, index_head_dim: of an indexer that picks
    blocks of tokens (MiniMax-M3), which caches one key a token of its own; 0: none.
    """

    heads: int
    kv_heads: int
    head_dim: int
    window_tokens: int | None = None
    output_gate: bool = False
    v_head_dim: int | None = None
    shares_cache: bool = False
    shares_weights: bool = False
    chunk_tokens: int | None = None
    index_heads: int = 0
    index_head_dim: int = 0

    @property
    def value_dim(self) -> int:
        """Number of elements of one head's value."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim

    def kv_heads_on(self, tp: int) -> int:
        """Number of KV heads on one of `tp` GPUs."""
        return max(1, self.kv_heads // tp)

    def width_on(self, tp: int) -> int:
        """Number of elements of a token's queries, keys and values on one GPU."""
        kept = self.kv_heads_on(tp)
        queries = (1 + self.output_gate) * self.heads // tp * self.head_dim
        return queries + (0 if self.shares_cache else kept * (self.head_dim + self.value_dim))

    def weights(self, hidden: int, tp: int) -> Weights:
        """Parameters of the query, key, value and output projections on one GPU."""
        if self.shares_weights:
            return Weights()
        # As many query heads of the indexer as key and value heads, and one key.
        index = (max(1, self.index_heads // tp) + 1) * self.index_head_dim
        width = self.width_on(tp) + self.heads // tp * self.value_dim
        return Weights(linear=hidden * (width + index))

    def prefill_flops_per_pair(self) -> int:
        """FLOPs of one query-key pair over all heads: q.k and the weighted sum of v."""
        return 2 * self.heads * (self.head_dim + self.value_dim)

    def decode_flops_per_pair(self) -> int:
        """FLOPs of one query-key pair in a decode step: equal to prefill."""
        return self.prefill_flops_per_pair()
