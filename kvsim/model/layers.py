"""What a decoder layer is made of: a mixer (attention, MLA, recurrence) and a feed-forward part.

Counts are for one GPU of `tp` (tensor parallel size); `hidden` is the model's hidden size. Key and
value heads that tp does not divide are replicated, and so are MLA's down-projections and routers.
"""

from dataclasses import dataclass

from kvsim.model.weights import Weights


@dataclass(frozen=True, slots=True)
class Attention:
    """Multi-head, grouped-query or multi-query attention, perhaps over a sliding window.

    window_tokens: a query sees only so many newest tokens, itself included; None: all.
    output_gate: the query projection also gives a gate for the output.
    """

    heads: int
    kv_heads: int
    head_dim: int
    window_tokens: int | None = None
    output_gate: bool = False

    def kv_heads_on(self, tp: int) -> int:
        """Key and value heads one GPU keeps."""
        return max(1, self.kv_heads // tp)

    def weights(self, hidden: int, tp: int) -> Weights:
        """Query, key, value and output projections."""
        heads = (2 + self.output_gate) * self.heads // tp + 2 * self.kv_heads_on(tp)
        return Weights(linear=hidden * self.head_dim * heads)

    def prefill_flops_per_pair(self) -> int:
        """FLOPs of one query-key pair over all heads: q.k and the weighted sum of v."""
        return 4 * self.heads * self.head_dim

    def decode_flops_per_pair(self) -> int:
        """The same, in a decode step."""
        return self.prefill_flops_per_pair()


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).

    It caches one latent of kv_lora_rank and one rotated key of rope_head_dim per token, for all
    heads. q_lora_rank None: queries are projected in one piece.
    """

    heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    nope_head_dim: int
    rope_head_dim: int
    v_head_dim: int

    def weights(self, hidden: int, tp: int) -> Weights:
        """Down- and up-projections of queries, of keys and values, and the output projection."""
        heads, query_dim = self.heads // tp, self.nope_head_dim + self.rope_head_dim
        if self.q_lora_rank is None:
            query = hidden * heads * query_dim
        else:
            query = self.q_lora_rank * (hidden + heads * query_dim)
        latent = hidden * (self.kv_lora_rank + self.rope_head_dim)
        up = self.kv_lora_rank * heads * (self.nope_head_dim + self.v_head_dim)
        output = heads * self.v_head_dim * hidden
        return Weights(linear=query + latent + up + output)

    def prefill_flops_per_pair(self) -> int:
        """FLOPs of one query-key pair with keys and values expanded."""
        return 2 * self.heads * (self.nope_head_dim + self.rope_head_dim + self.v_head_dim)

    def decode_flops_per_pair(self) -> int:
        """FLOPs of one pair with the up-projections absorbed: attention over the latent itself."""
        return 2 * self.heads * (2 * self.kv_lora_rank + self.rope_head_dim)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrent mixer (Mamba, gated delta rule): a state of constant size, whatever the context.

    linear_params, other_params: its parameters; conv_elements, ssm_elements: of its state;
    ssm_dtype: dtype of the second part (the first is in the model's dtype).
    """

    linear_params: int
    other_params: int
    conv_elements: int
    ssm_elements: int
    ssm_dtype: str

    def weights(self, hidden: int, tp: int) -> Weights:
        """In, out and time-step projections; convolution and decay among the others."""
        return Weights(linear=self.linear_params // tp, other=self.other_params // tp)


@dataclass(frozen=True, slots=True)
class Dense:
    """One feed-forward network; gated ones have three matrices, plain ones two."""

    intermediate_size: int
    gated: bool = True

    def weights(self, hidden: int, tp: int) -> Weights:
        """Up, down and, if gated, gate matrices."""
        return Weights(linear=(2 + self.gated) * hidden * self.intermediate_size // tp)

    def active(self, hidden: int) -> int:
        """Matrix elements one token is multiplied with, over all GPUs."""
        return self.weights(hidden, 1).linear

    def peak_width(self) -> int:
        """Intermediate elements of one token that live together: gate, up and their product."""
        return (1 + 2 * self.gated) * self.intermediate_size


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of gated experts: a token passes `experts_per_token` of `num_experts`.

    shared_intermediate_size: of experts that every token passes; 0: none.
    """

    intermediate_size: int
    num_experts: int
    experts_per_token: int
    shared_intermediate_size: int = 0

    def weights(self, hidden: int, tp: int) -> Weights:
        """Routed experts; the router (on every GPU) and shared experts count as linear."""
        shared = 3 * hidden * self.shared_intermediate_size // tp
        routed = 3 * hidden * self.intermediate_size * self.num_experts // tp
        return Weights(linear=hidden * self.num_experts + shared, expert=routed)

    def active(self, hidden: int) -> int:
        """Matrix elements one token is multiplied with, over all GPUs."""
        experts = self.experts_per_token * self.intermediate_size + self.shared_intermediate_size
        return hidden * self.num_experts + 3 * hidden * experts

    def peak_width(self) -> int:
        """Intermediate elements of one token that live together, over the experts it visits."""
        return 3 * max(
            self.experts_per_token * self.intermediate_size, self.shared_intermediate_size
        )


Mixer = Attention | LatentAttention | Recurrence
FeedForward = Dense | Experts


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. extra_params: norms and biases of the whole layer."""

    mixer: Mixer
    feed_forward: FeedForward
    extra_params: int = 0

    def weights(self, hidden: int, tp: int) -> Weights:
        """Parameters of the layer on one of tp GPUs; norms and biases are replicated."""
        return (
            self.mixer.weights(hidden, tp)
            + self.feed_forward.weights(hidden, tp)
            + Weights(other=self.extra_params)
        )
