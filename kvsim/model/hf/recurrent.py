"""Mixers of constant state: Mamba, Mamba-2, the gated delta rule, Kimi's, short convolutions.

The states are as vLLM stores them: the last kernel - 1 inputs of a convolution, and the state of
the recurrence. They follow arXiv 2312.00752 (Jamba's), 2405.21060 (Bamba, Granite and Nemotron
hybrids), 2412.06464 (Qwen3-Next) and 2510.26692 (Kimi Linear).
"""

from dataclasses import replace

from kvsim.model.hf.keys import Keys
from kvsim.model.layers import Recurrence
from kvsim.model.weights import DTYPE_BYTES
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div


def recurrence(keys: Keys, dtype: str) -> Recurrence:
    """The mixer of a "linear_attention" layer. dtype: the model's."""
    named = keys.get("mamba_ssm_dtype", default=None) is not None
    return replace(_recurrence(keys, dtype), ssm_dtype_named=named)


def _recurrence(keys: Keys, dtype: str) -> Recurrence:
    ssm_dtype = str(keys.get("mamba_ssm_dtype", "mamba_ssm_cache_dtype", default=dtype))
    if ssm_dtype not in DTYPE_BYTES:
        raise InputError("unknown mamba_ssm_dtype", where=keys.where, value=ssm_dtype)
    kind = keys.architecture.linear
    if kind == "gated_delta":
        return _gated_delta(keys, ssm_dtype)
    if kind == "kimi_delta":
        return _kimi_delta(keys)
    if kind == "mamba" and keys.get("mamba_n_heads", default=None) is None:
        return _mamba(keys, ssm_dtype)
    if kind in ("mamba", "mamba_2"):
        return _mamba_2(keys, ssm_dtype)
    raise InputError(
        "linear attention of this architecture is not understood",
        where=keys.where,
        value=f"model_type {keys.kind!r}",
    )


def short_convolution(keys: Keys) -> Recurrence:
    """The mixer of a "conv" layer (LFM2): a gated convolution over few tokens."""
    hidden, kernel = keys.hidden, keys.integer("conv_L_cache", default=3)
    return Recurrence(
        linear_params=4 * hidden * hidden,
        other_params=hidden * (kernel + keys.flag("conv_bias")),
        conv_elements=hidden * (kernel - 1),
        ssm_elements=0,
        ssm_dtype="float32",
        conv_width=hidden,
    )


def _mamba(keys: Keys, ssm_dtype: str) -> Recurrence:
    hidden = keys.hidden
    inner = hidden * keys.integer("mamba_expand", "expand", default=2)
    if keys.kind in ("mamba", "falcon_mamba"):  # Falcon-Mamba's expand says something else
        inner = keys.integer("intermediate_size", default=inner)
    kernel = keys.integer("mamba_d_conv", "conv_kernel", default=4)
    state = keys.integer("mamba_d_state", "state_size", default=16)
    names = ("mamba_dt_rank", "time_step_rank")
    by_width = keys.get(*names, default="auto") == "auto"
    rank = ceil_div(hidden, 16) if by_width else keys.integer(*names)
    return Recurrence(
        linear_params=3 * hidden * inner + inner * (2 * rank + 2 * state),
        other_params=inner * (kernel + state + 3) + rank + 2 * state,
        conv_elements=inner * (kernel - 1),
        ssm_elements=inner * state,
        ssm_dtype=ssm_dtype,
        conv_width=inner,
    )


def _mamba_2(keys: Keys, ssm_dtype: str) -> Recurrence:
    hidden = keys.hidden
    heads = keys.integer("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    kernel = keys.integer("mamba_d_conv", "conv_kernel", default=4)
    state = keys.integer("mamba_d_state", "ssm_state_size", "state_size", default=256)
    groups = keys.integer("mamba_n_groups", "n_groups", "mamba_ngroups", default=1)
    inner = hidden * keys.integer("mamba_expand", "expand", default=2)
    # The plain Mamba-2's head_dim is its own; beside attention that key is attention's.
    names = ["mamba_d_head", "mamba_head_dim", "mamba_headdim"]
    names += ["head_dim"] if keys.kind == "mamba2" else []
    if keys.get(*names, default="auto") != "auto":
        inner = heads * keys.integer(*names)
    if keys.get("mamba_d_ssm", default=None) is not None:
        inner = keys.integer("mamba_d_ssm")
    mixed = inner + 2 * groups * state
    return Recurrence(
        linear_params=hidden * (inner + mixed + heads) + inner * hidden,
        other_params=mixed * (kernel + 1) + 3 * heads + inner,
        conv_elements=mixed * (kernel - 1),
        ssm_elements=inner * state,
        ssm_dtype=ssm_dtype,
        conv_width=mixed,
    )


def _gated_delta(keys: Keys, ssm_dtype: str) -> Recurrence:
    hidden, kernel = keys.hidden, keys.integer("linear_conv_kernel_dim")
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
        conv_width=mixed,
    )


def _kimi_delta(keys: Keys) -> Recurrence:
    """The mixer of Kimi's delta attention: a gate for each channel, from a projection through one
    head's width; its state is float32.
    """
    hidden, config = keys.hidden, keys.inner("linear_attn_config")
    heads = config.integer("num_heads", "linear_num_heads", default=32)
    head_dim = config.integer("head_dim", "linear_head_dim", default=128)
    kernel = config.integer("short_conv_kernel_size", "linear_conv_kernel_dim", default=4)
    width = heads * head_dim
    gates = 2 * head_dim * (hidden + width) + hidden * heads
    return Recurrence(
        linear_params=4 * hidden * width + gates,
        other_params=3 * width * kernel + width + heads + head_dim,
        conv_elements=3 * width * (kernel - 1),
        ssm_elements=heads * head_dim * head_dim,
        ssm_dtype="float32",
        conv_width=3 * width,
    )
