"""Attention over a window of tokens and compressed older tokens (DeepSeek-V4)."""

from dataclasses import dataclass, replace
from typing import Self

from kvsim.model.weights import Weights

OVERLAPPING = 4  # of this ratio, neighbouring groups of tokens overlap and an indexer picks some


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """Attention with one key that is the value too, for all heads (DeepSeek-V4's report, section
    2.3).

    There is one key for each of the newest window_tokens tokens, and one for every compress_ratio
    older tokens.

    compress_ratio: 4 (an indexer of index_heads picks the keys to attend to), 128, or 0 for only
    the window. q_lora_rank: rank of the query projection. o_groups, o_lora_rank: the output is
    projected in o_groups groups through o_lora_rank elements each. index_topk: number of compressed
    keys that the indexer picks; None: unknown, and all count as read.
    """

    heads: int
    head_dim: int
    rope_head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    window_tokens: int
    compress_ratio: int = 0
    index_heads: int = 0
    index_head_dim: int = 0
    index_topk: int | None = None

    @property
    def has_indexer(self) -> bool:
        """Whether an indexer picks among the compressed keys."""
        return self.compress_ratio == OVERLAPPING

    @property
    def streams(self) -> int:
        """Number of compressed entries to which each token contributes."""
        return 2 if self.compress_ratio == OVERLAPPING else 1

    def without_compression(self) -> Self:
        """The same attention with only the window, as in the multi-token prediction module."""
        return replace(self, compress_ratio=0, index_heads=0, index_head_dim=0, index_topk=None)

    def weights(self, hidden: int, tp: int) -> Weights:
        """Parameters on one GPU. Queries and output are split over GPUs; keys, compressors and the
        indexer are replicated. The compressors stay in the model's dtype.
        """
        heads = self.heads // tp
        linear = hidden * (self.q_lora_rank + self.head_dim)
        linear += self.q_lora_rank * heads * self.head_dim
        linear += heads * self.head_dim * self.o_lora_rank
        linear += self.o_groups * self.o_lora_rank // tp * hidden
        kept = 0
        widths = [self.head_dim] if self.compress_ratio else []
        if self.has_indexer:
            linear += self.q_lora_rank * self.index_heads * self.index_head_dim
            kept += hidden * self.index_heads
            widths.append(self.index_head_dim)
        for width in widths:
            kept += (2 * hidden + self.compress_ratio) * self.streams * width + width
        return Weights(linear=linear, other=kept)

    def prefill_flops_per_pair(self) -> int:
        """FLOPs of one query-key pair over all heads, without compression."""
        return 4 * self.heads * self.head_dim

    def decode_flops_per_pair(self) -> int:
        """FLOPs of one query-key pair in a decode step: equal to prefill."""
        return self.prefill_flops_per_pair()
