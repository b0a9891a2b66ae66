"""Attention over a window of tokens and a compressed rest (DeepSeek-V4)."""

from dataclasses import dataclass, replace
from typing import Self

from kvsim.model.weights import Weights

OVERLAPPING = 4  # of this ratio, neighbouring groups of tokens overlap and an indexer picks some


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """Attention with one key that is the value too, for all heads (DeepSeek-V4's report, section
    2.3).

    There is one key for each of the newest window_tokens tokens, and one for every compress_ratio
    older ones together.

    compress_ratio: 4 (an indexer of index_heads picks what is attended to), 128, or 0 for the
    window alone. q_lora_rank: queries come through it. o_groups, o_lora_rank: the output is
    projected in o_groups groups through o_lora_rank elements each. index_topk: compressed keys that
    the indexer picks; None: not known, and all are taken as read.
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
        """Whether it picks among the compressed."""
        return self.compress_ratio == OVERLAPPING

    @property
    def streams(self) -> int:
        """Compressions a group of tokens takes part in."""
        return 2 if self.compress_ratio == OVERLAPPING else 1

    def without_compression(self) -> Self:
        """The window alone, as the module that drafts the next tokens has it."""
        return replace(self, compress_ratio=0, index_heads=0, index_head_dim=0, index_topk=None)

    def weights(self, hidden: int, tp: int) -> Weights:
        """Queries and output are split over GPUs; keys, compressors and the indexer stand on each.
        The compressors stay in the model's dtype.
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
        """FLOPs of one query-key pair over all heads, were nothing compressed."""
        return 4 * self.heads * self.head_dim

    def decode_flops_per_pair(self) -> int:
        """The same, in a decode step."""
        return self.prefill_flops_per_pair()
