"""Mixers of hybrid models that keep a state of constant size: Mamba, Mamba-2, gated delta rule.

The states follow arXiv 2312.00752 (Jamba's), 2405.21060 (Bamba, Granite hybrids) and 2412.06464
(Qwen3-Next) as vLLM keeps them: the last kernel - 1 inputs of a convolution, and the state of the
recurrence.
"""

from kvsim.model.hf_keys import Keys
from kvsim.model.layers import Recurrence
from kvsim.model.weights import DTYPE_BYTES
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div

MAMBA_KINDS = ("jamba", "bamba", "granitemoehybrid")


def recurrence(keys: Keys, kind: str, dtype: str) -> Recurrence:
    """The mixer of a layer of this kind (mamba or linear_attention); `dtype` is the model's."""
    ssm_dtype = str(keys.get("mamba_ssm_dtype", default=dtype))
    if ssm_dtype not in DTYPE_BYTES:
        raise InputError("unknown mamba_ssm_dtype", where=keys.where, value=ssm_dtype)
    if kind == "linear_attention":
        return _gated_delta(keys, ssm_dtype)
    if keys.get("mamba_n_heads", default=None) is None:
        return _mamba(keys, ssm_dtype)
    return _mamba_2(keys, ssm_dtype)


def _mamba(keys: Keys, ssm_dtype: str) -> Recurrence:
    hidden = keys.integer("hidden_size")
    inner = hidden * keys.integer("mamba_expand", default=2)
    kernel = keys.integer("mamba_d_conv", default=4)
    state = keys.integer("mamba_d_state", default=16)
    rank = keys.get("mamba_dt_rank", default="auto")
    rank = ceil_div(hidden, 16) if rank == "auto" else keys.integer("mamba_dt_rank")
    return Recurrence(
        linear_params=3 * hidden * inner + inner * (2 * rank + 2 * state),
        other_params=inner * (kernel + state + 3) + rank + 2 * state,
        conv_elements=inner * (kernel - 1),
        ssm_elements=inner * state,
        ssm_dtype=ssm_dtype,
    )


def _mamba_2(keys: Keys, ssm_dtype: str) -> Recurrence:
    hidden, heads = keys.integer("hidden_size"), keys.integer("mamba_n_heads")
    kernel = keys.integer("mamba_d_conv", default=4)
    state = keys.integer("mamba_d_state", default=256)
    inner = hidden * keys.integer("mamba_expand", default=2)
    if keys.get("mamba_d_head", default="auto") != "auto":
        inner = heads * keys.integer("mamba_d_head")
    mixed = inner + 2 * keys.integer("mamba_n_groups", default=1) * state
    return Recurrence(
        linear_params=hidden * (inner + mixed + heads) + inner * hidden,
        other_params=mixed * (kernel + 1) + 3 * heads + inner,
        conv_elements=mixed * (kernel - 1),
        ssm_elements=inner * state,
        ssm_dtype=ssm_dtype,
    )


def _gated_delta(keys: Keys, ssm_dtype: str) -> Recurrence:
    hidden, kernel = keys.integer("hidden_size"), keys.integer("linear_conv_kernel_dim")
    value_heads, value_dim = (
        keys.integer("linear_num_value_heads"),
        keys.integer("linear_value_head_dim"),
    )
    key_dim = keys.integer("linear_key_head_dim")
    key_width = keys.integer("linear_num_key_heads") * key_dim
    value_width = value_heads * value_dim
    mixed = 2 * key_width + value_width
    return Recurrence(
        linear_params=hidden * (mixed + value_width + 2 * value_heads) + value_width * hidden,
        other_params=mixed * kernel + 2 * value_heads + value_dim,
        conv_elements=mixed * (kernel - 1),
        ssm_elements=value_heads * key_dim * value_dim,
        ssm_dtype=ssm_dtype,
    )
