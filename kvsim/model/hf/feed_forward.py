"""The feed-forward part of one layer: dense, or a mixture of experts."""

from kvsim.model.hf.blocks import block_width
from kvsim.model.hf.keys import Keys
from kvsim.model.hf.layer_kinds import MLP, MOE
from kvsim.model.layers import Dense, Experts

EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_k")
PER_TOKEN_ALSO = ("top_k_experts", "moe_topk")
WIDTHS = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "block_ff_dim")
SHARED_WIDTHS = (
    *("shared_expert_intermediate_size", "shared_intermediate_size"),
    *("moe_shared_expert_intermediate_size", "share_expert_dim"),
)
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")


def feed_forward(keys: Keys, kind: str, index: int) -> Dense | Experts:
    """The feed-forward part of layer `index`. kind: "moe" or "mlp", if the config gives a kind for
    each layer.
    """
    if kind != MLP and keys.count(*EXPERTS, index=index) and (kind == MOE or _sparse(keys, index)):
        return _experts(keys, index)
    names: tuple[str, ...] = WIDTHS
    if keys.kind == "granitemoehybrid":
        names = ("shared_intermediate_size", *WIDTHS)
    elif keys.kind.startswith("minimax_m3"):
        names = ("dense_intermediate_size", *WIDTHS)
    if keys.get("block_configs", default=None) is not None:
        return Dense(block_width(keys, index), gated=keys.architecture.gated)
    width = keys.integer(*names, default=4 * keys.hidden, index=index)
    if keys.kind == "qwen":  # the first Qwen writes the width of gate and up together
        width //= 2
    if keys.kind == "llama4_text":
        width = keys.integer("intermediate_size_mlp")
    if keys.kind.startswith("lfm2") and keys.flag("block_auto_adjust_ff_dim", default=False):
        width = _adjusted(keys, width)
    first_shared = keys.integer("num_hidden_layers", default=1) - keys.count("num_kv_shared_layers")
    if keys.flag("use_double_wide_mlp") and index >= first_shared:
        width *= 2
    return Dense(width, gated=keys.architecture.gated)


def _experts(keys: Keys, index: int) -> Experts:
    names = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    listed = keys.get("moe_intermediate_size", default=None)
    if keys.kind == "ernie4_5_vl_moe_text" and isinstance(listed, list):
        width = sum(listed)  # as many experts for text as for images, of their own widths
    else:
        width = keys.integer(*names, index=index)
    shared = keys.count(*SHARED_WIDTHS, index=index)
    if keys.kind == "llama4_text":
        shared = width
    elif keys.kind == "gemma4_text":  # its dense part stands beside the experts
        shared = keys.integer("intermediate_size", index=index)
    elif not shared:
        shared = keys.count(*SHARED, index=index) * width
    return Experts(
        width,
        keys.integer(*EXPERTS, index=index),
        keys.integer(*PER_TOKEN, *PER_TOKEN_ALSO, index=index),
        shared,
        gated=keys.architecture.gated,
        latent_size=keys.count("moe_latent_size", "moe_hidden_size"),
    )


def _sparse(keys: Keys, index: int) -> bool:
    """Whether layer `index` of a mixture-of-experts model has experts (some models also have dense
    layers).
    """
    listed = keys.get("mlp_layer_types", default=None)
    if listed is not None:
        return index < len(listed) and bool(listed[index] != "dense")
    listed = keys.get("moe_layers", default=None)
    if listed is not None:
        return index in listed
    frequency = keys.get("moe_layer_freq", default=1)
    if isinstance(frequency, list):
        return index < len(frequency) and bool(frequency[index])
    if keys.kind == "jamba":
        period = keys.integer("expert_layer_period", default=2)
        return index % period == keys.count("expert_layer_offset")
    if keys.kind == "gemma4_text":
        return keys.flag("enable_moe_block")
    if index < keys.count("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"):
        return False
    if index in keys.get("mlp_only_layers", default=[]):
        return False
    steps = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
    return (index + 1) % keys.integer(*steps, default=1) == 0


def _adjusted(keys: Keys, width: int) -> int:
    """LFM2's width: two thirds of `width`, times a factor, rounded up to a multiple."""
    width = int(keys.get("block_ffn_dim_multiplier", default=1.0) * (2 * width // 3))
    multiple = keys.integer("block_multiple_of", default=256)
    return multiple * -(-width // multiple)
