"""Attention over a compressed latent, with or without an indexer that picks tokens."""

from dataclasses import dataclass

from kvsim.model.weights import Weights


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).

    It caches one latent of kv_lora_rank and one rotated key of rope_head_dim per token, for all
    heads. q_lora_rank None: queries have one projection. index_heads, index_head_dim: of the
    indexer that picks the tokens to attend to (DeepSeek-V3.2), which also caches one key for each
    token; 0: no indexer. expanded: keys and values are cached for each head, values as wide as
    keys. output_gate: the hidden state gates the output, one gate for each element (HY-V4).
    """

    heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    nope_head_dim: int
    rope_head_dim: int
    v_head_dim: int
    index_heads: int = 0
    index_head_dim: int = 0
    expanded: bool = False
    output_gate: bool = False

    def weights(self, hidden: int, tp: int) -> Weights:
        """Parameters of the down- and up-projections and of the output projection; the indexer's
        are replicated on every GPU.
        """
        heads, query_dim = self.heads // tp, self.nope_head_dim + self.rope_head_dim
        if self.q_lora_rank is None:
            query = hidden * heads * query_dim
        else:
            query = self.q_lora_rank * (hidden + heads * query_dim)
        latent = hidden * (self.kv_lora_rank + self.rope_head_dim)
        up = self.kv_lora_rank * heads * (self.nope_head_dim + self.v_head_dim)
        output = (1 + self.output_gate) * heads * self.v_head_dim * hidden
        index = self.index_heads * ((self.q_lora_rank or hidden) * self.index_head_dim + hidden)
        index += hidden * self.index_head_dim
        return Weights(linear=query + latent + up + output + index)

    def prefill_flops_per_pair(self) -> int:
        """FLOPs of one query-key pair with keys and values expanded."""
        return 2 * self.heads * (self.nope_head_dim + self.rope_head_dim + self.v_head_dim)

    def decode_flops_per_pair(self) -> int:
        """FLOPs of one pair with the up-projections absorbed: attention over the latent itself."""
        return 2 * self.heads * (2 * self.kv_lora_rank + self.rope_head_dim)
