"""The decoder layers that a config.json describes: mixers, windows and feed-forward parts."""

from typing import Any

from kvsim.model.hf_keys import Keys
from kvsim.model.hf_recurrent import MAMBA_KINDS, recurrence
from kvsim.model.layers import Attention, Dense, Experts, FeedForward, LatentAttention, Layer, Mixer
from kvsim.plumbing.errors import InputError

# Architectures with LayerNorm (weight and bias) and with biases on every projection.
LAYER_NORM = ("opt", "gpt2", "gpt_bigcode", "gpt_neox", "bloom", "falcon", "starcoder2", "phi")
ALL_BIASES = ("opt", "gpt2", "gpt_bigcode", "gpt_neox", "bloom", "starcoder2", "phi")
PLAIN_MLP = (*LAYER_NORM, "mpt", "gptj", "nemotron")
NORMS_PER_LAYER = {"gemma2": 4, "gemma3_text": 4, "cohere": 1, "cohere2": 1, "phi": 1}
SLIDING_FIRST_OF_TWO = ("gemma2",)
GATED_DELTA = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
QUERY_KEY_NORMS = ("qwen3", "qwen3_moe", "gemma3_text", *GATED_DELTA)
RECURRENT = ("mamba", "linear_attention")
KNOWN_LAYERS = ("full_attention", "sliding_attention", *RECURRENT)
WINDOWED_EVERYWHERE = ("mistral", "mixtral", "phi3", "starcoder2")


def decoder_layers(keys: Keys, dtype: str) -> tuple[Layer, ...]:
    """All layers in order; `dtype` is the model's. Raises InputError on what is not understood."""
    count = keys.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    kinds = _layer_kinds(keys, count)
    mixers: dict[str, Mixer] = {
        kind: recurrence(keys, kind, dtype) if kind in RECURRENT else _attention(keys, kind)
        for kind in dict.fromkeys(kinds)
    }
    layers = []
    for index, kind in enumerate(kinds):
        mixer, feed_forward = mixers[kind], _feed_forward(keys, index)
        layers.append(Layer(mixer, feed_forward, _extra_params(keys, mixer, feed_forward)))
    return tuple(layers)


def norm_params(keys: Keys, width: int) -> int:
    """Parameters of one norm over `width` elements."""
    return (2 if keys.kind in LAYER_NORM else 1) * width


def _layer_kinds(keys: Keys, count: int) -> list[str]:
    """For each layer, one of KNOWN_LAYERS."""
    written = keys.get("layer_types", "layers_block_type", default=None)
    if written is not None:
        kinds = ["full_attention" if kind == "attention" else kind for kind in written]
        unknown = next((kind for kind in kinds if kind not in KNOWN_LAYERS), None)
        if unknown is not None or len(kinds) != count:
            raise InputError(
                "layer types are not understood" if unknown else "one layer type a layer is needed",
                where=f"{keys.where}: layer_types",
                value=unknown or len(kinds),
                limit=", ".join(KNOWN_LAYERS) if unknown else count,
            )
        return kinds
    if keys.kind in (*MAMBA_KINDS, *GATED_DELTA):
        return [_hybrid_kind(keys, index) for index in range(count)]
    window = _window(keys)
    pattern = int(keys.get("sliding_window_pattern", "_sliding_window_pattern", default=0))
    full_from = 0
    if keys.kind in WINDOWED_EVERYWHERE:
        full_from = count
    elif keys.kind.startswith("qwen") and keys.get("use_sliding_window", default=False):
        # Qwen windows the layers from max_window_layers on.
        first = int(keys.get("max_window_layers", default=count))
        return [_sliding(window is not None and index >= first) for index in range(count)]
    elif keys.kind in SLIDING_FIRST_OF_TWO:
        pattern = 2
    if pattern:
        return [_sliding(window is not None and (i + 1) % pattern != 0) for i in range(count)]
    return [_sliding(window is not None and index < full_from) for index in range(count)]


def _sliding(windowed: bool) -> str:
    return "sliding_attention" if windowed else "full_attention"


def _hybrid_kind(keys: Keys, index: int) -> str:
    """Jamba places attention by period and offset, Bamba by indices, Qwen by an interval."""
    if keys.kind in GATED_DELTA:
        last = (index + 1) % keys.integer("full_attention_interval", default=4) == 0
        return "full_attention" if last else "linear_attention"
    if keys.get("attn_layer_indices", default=None) is not None:
        attention = index in keys.get("attn_layer_indices")
    else:
        period = keys.integer("attn_layer_period")
        attention = index % period == int(keys.get("attn_layer_offset", default=0))
    return "full_attention" if attention else "mamba"


def _window(keys: Keys) -> int | None:
    """The window in tokens; one as long as the longest sequence is none."""
    window = keys.get("sliding_window", default=None)
    longest = keys.get("max_position_embeddings", default=None)
    if window is None or (longest is not None and window >= longest):
        return None
    return keys.integer("sliding_window")


def _attention(keys: Keys, kind: str) -> Attention | LatentAttention:
    hidden = keys.integer("hidden_size", "n_embd", "d_model", "n_embed")
    heads = keys.integer("num_attention_heads", "n_head", "n_heads")
    if keys.get("kv_lora_rank", default=None) is not None:
        return LatentAttention(
            heads,
            keys.get("q_lora_rank", default=None),
            keys.integer("kv_lora_rank"),
            keys.integer("qk_nope_head_dim"),
            keys.integer("qk_rope_head_dim"),
            keys.integer("v_head_dim"),
        )
    head_dim = keys.integer("head_dim", "kv_channels", default=max(1, hidden // heads))
    window = _window(keys) if kind == "sliding_attention" else None
    if kind == "sliding_attention" and keys.get("sliding_window", default=None) is None:
        raise InputError("sliding layers need a sliding_window", where=keys.where)
    gate = keys.kind in GATED_DELTA
    return Attention(heads, _kv_heads(keys, heads), head_dim, window, gate)


def _kv_heads(keys: Keys, heads: int) -> int:
    if keys.kind == "falcon":
        if keys.get("new_decoder_architecture", default=False):
            return keys.integer("num_kv_heads", "n_head_kv", default=heads)
        return 1 if keys.get("multi_query", default=True) else heads
    if keys.kind == "gpt_bigcode":
        return 1 if keys.get("multi_query", default=True) else heads
    if keys.kind == "mpt":
        return keys.inner("attn_config").integer("kv_n_heads", default=heads)
    return keys.integer(
        "num_key_value_heads", "num_kv_heads", "multi_query_group_num", default=heads
    )


def _feed_forward(keys: Keys, index: int) -> FeedForward:
    experts = keys.get("num_local_experts", "n_routed_experts", "num_experts", default=0)
    if experts and _is_sparse(keys, index):
        width = keys.integer("moe_intermediate_size", "intermediate_size")
        shared = keys.get("shared_expert_intermediate_size", "shared_intermediate_size", default=0)
        if not shared:
            shared = int(keys.get("n_shared_experts", default=0)) * width
        per_token = keys.integer("num_experts_per_tok", "experts_per_token")
        return Experts(width, int(experts), per_token, int(shared))
    hidden = keys.integer("hidden_size", "n_embd", "d_model", "n_embed")
    width = keys.integer(
        "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", default=4 * hidden
    )
    if keys.kind == "qwen":  # the first Qwen writes the width of gate and up together
        width //= 2
    return Dense(width, gated=keys.kind not in PLAIN_MLP)


def _is_sparse(keys: Keys, index: int) -> bool:
    """Whether layer `index` of a mixture of experts has experts (some begin or mix with dense)."""
    if keys.kind == "jamba":
        period = keys.integer("expert_layer_period", default=2)
        return index % period == int(keys.get("expert_layer_offset", default=1))
    if index < int(keys.get("first_k_dense_replace", default=0)):
        return False
    if index in keys.get("mlp_only_layers", default=[]):
        return False
    return (index + 1) % keys.integer("decoder_sparse_step", default=1) == 0


def _extra_params(keys: Keys, mixer: Mixer, feed_forward: FeedForward) -> int:
    """Norms and biases of one layer."""
    hidden = keys.integer("hidden_size", "n_embd", "d_model", "n_embed")
    total = _norms(keys) * norm_params(keys, hidden)
    if isinstance(mixer, LatentAttention):
        total += (mixer.q_lora_rank or 0) + mixer.kv_lora_rank
    if isinstance(mixer, Attention):
        query, value = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
        if keys.kind in ALL_BIASES or keys.get("attention_bias", "bias", default=False):
            total += query + 2 * value
            # Qwen2 has biases on queries, keys and values alone.
            total += 0 if keys.kind.startswith("qwen") else hidden
        if keys.kind in QUERY_KEY_NORMS:
            total += 2 * mixer.head_dim
        if keys.kind == "gpt_oss":  # one attention sink a head
            total += mixer.heads
    if isinstance(feed_forward, Dense) and keys.kind in ALL_BIASES:
        total += feed_forward.intermediate_size + hidden
    if isinstance(feed_forward, Experts) and keys.kind == "gpt_oss":
        biases = 2 * feed_forward.intermediate_size + hidden + 1
        total += feed_forward.num_experts * biases
    if isinstance(feed_forward, Experts) and keys.kind == "deepseek_v3":
        total += feed_forward.num_experts  # the router's load-balancing bias
    return total


def _norms(keys: Keys) -> int:
    """Norms over the hidden state in one layer."""
    if keys.kind == "falcon":
        two = keys.get("new_decoder_architecture", default=False)
        return 2 if two or not keys.get("parallel_attn", default=True) else 1
    norms: Any = NORMS_PER_LAYER.get(keys.kind, 2)
    return int(norms)
