"""Parameters that quantisers leave unchanged: norms, biases, learned positions and side
embeddings.
"""

from kvsim.model.hf.compressed import head_extras, mixer_extras
from kvsim.model.hf.keys import Keys
from kvsim.model.hf.shared_blocks import shared_blocks
from kvsim.model.layers import (
    Absent,
    Attention,
    CompressedAttention,
    Dense,
    Experts,
    FeedForward,
    LatentAttention,
    Mixer,
)


def norm_params(keys: Keys, width: int) -> int:
    """Parameters of one norm over `width` elements."""
    return (2 if keys.architecture.layer_norm else 1) * width


def layer_extras(keys: Keys, mixer: Mixer, part: FeedForward) -> int:
    """Number of parameters in norms, biases and side paths of one layer."""
    hidden, about = keys.hidden, keys.architecture
    total = _norms(keys, mixer, part) * norm_params(keys, hidden)
    if isinstance(mixer, LatentAttention):
        total += (mixer.q_lora_rank or 0) + mixer.kv_lora_rank + 2 * mixer.index_head_dim
        total += mixer.heads * about.attention_sinks
    if isinstance(mixer, CompressedAttention):
        total += mixer_extras(keys, mixer) + mixer.heads * about.attention_sinks
    if isinstance(mixer, Attention):
        query, kept = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
        if about.biases == "all" or keys.flag("attention_bias", "bias"):
            total += query + 2 * kept
            total += 0 if about.biases == "qkv" else hidden
        if about.qk_norm == "head":
            total += 2 * mixer.head_dim
        elif about.qk_norm == "all":
            total += query + kept
        total += 2 * mixer.index_head_dim
        total += mixer.heads if about.attention_sinks else 0
    if isinstance(part, Dense) and about.biases == "all":
        total += part.intermediate_size + hidden
    if isinstance(part, Experts):
        if keys.kind == "gpt_oss":
            total += part.num_experts * (2 * part.intermediate_size + hidden + 1)
        total += part.num_experts if about.router_bias else 0
    return total + _side_paths(keys, part) + (_mixed_streams(keys) if keys.kind == "hy_v4" else 0)


def _mixed_streams(keys: Keys) -> int:
    """HY-V4's connections before and after both parts of a layer: rows that mix hc_mult streams."""
    streams = keys.count("hc_mult")
    rows = 2 * streams
    return 2 * (rows * (streams * keys.hidden + 1) + 2) if streams else 0


def _norms(keys: Keys, mixer: Mixer, part: FeedForward) -> int:
    """Number of parameters in norms over the hidden state in one layer."""
    if keys.kind == "falcon":
        two = keys.flag("new_decoder_architecture") or not keys.flag("parallel_attn", default=True)
        return 2 if two else 1
    if isinstance(mixer, Absent) or isinstance(part, Absent):
        return 1
    return keys.architecture.norms


def _side_paths(keys: Keys, part: FeedForward) -> int:
    """Number of parameters in per-layer embeddings of Gemma 3n and 4, and in Gemma 3n's low-rank
    and alternating paths.
    """
    if isinstance(part, Absent) or not keys.kind.startswith(("gemma3n", "gemma4")):
        return 0
    hidden, side = keys.hidden, keys.count("hidden_size_per_layer_input")
    total = 2 * hidden * side + (hidden if side else 0)
    if keys.kind == "gemma3n_text":
        inputs, rank = keys.integer("altup_num_inputs"), keys.integer("laurel_rank")
        total += 2 * hidden * rank + hidden  # LAuReL
        total += inputs**2 + inputs**3 + hidden * (inputs + 2)  # AltUp
    return total


def model_extras(keys: Keys, layers: int) -> int:
    """Number of parameters of the final norm, and of learned or side embeddings if the architecture
    has them.
    """
    hidden = keys.hidden
    positions = {
        "opt": 2,  # OPT's table starts with two rows for padding
        "gpt2": 0,
        "gpt_bigcode": 0,
    }
    total = norm_params(keys, hidden)
    if keys.kind in positions:
        rows = keys.integer("max_position_embeddings", "n_positions") + positions[keys.kind]
        total += rows * hidden
    if keys.kind == "bloom":  # a norm over the embeddings
        total += 2 * hidden
    if keys.kind == "phi":  # the head has a bias
        total += keys.integer("vocab_size")
    if keys.kind.startswith(("gemma3n", "gemma4")):
        side = keys.count("hidden_size_per_layer_input")
        if side:
            total += keys.integer("vocab_size_per_layer_input") * side * layers
            total += hidden * side * layers + side
    if keys.kind == "gemma3n_text":
        total += 2 * (keys.integer("altup_num_inputs") - 1) * hidden * hidden
    if keys.architecture.compressed or (keys.kind == "hy_v4" and keys.count("hc_mult")):
        total += head_extras(keys)
    if keys.kind == "zamba2":
        total += shared_blocks(keys)
    return total
