"""State-space mixers of hybrid models: Mamba (Jamba) and Mamba-2 (Bamba, Granite hybrids).

The state follows arXiv 2312.00752 and 2405.21060 as vLLM keeps it: the last d_conv - 1 inputs of
the convolution, and the state of the recurrence.
"""

from kvsim.errors import InputError
from kvsim.model.hf_keys import Keys
from kvsim.model.layers import Recurrence
from kvsim.model.weights import DTYPE_BYTES
from kvsim.units import ceil_div

MAMBA_KINDS = ("jamba", "bamba", "granitemoehybrid")


def recurrence(keys: Keys, dtype: str) -> Recurrence:
    """The mixer of one Mamba layer; `dtype` is the model's."""
    hidden = keys.integer("hidden_size")
    inner = hidden * keys.integer("mamba_expand", default=2)
    kernel = keys.integer("mamba_d_conv", default=4)
    state = keys.integer("mamba_d_state", default=16)
    ssm_dtype = str(keys.get("mamba_ssm_dtype", default=dtype))
    if ssm_dtype not in DTYPE_BYTES:
        raise InputError("unknown mamba_ssm_dtype", where=keys.where, value=ssm_dtype)
    if keys.get("mamba_n_heads", default=None) is None:
        rank = keys.get("mamba_dt_rank", default="auto")
        rank = ceil_div(hidden, 16) if rank == "auto" else keys.integer("mamba_dt_rank")
        return Recurrence(
            linear_params=3 * hidden * inner + inner * (2 * rank + 2 * state),
            other_params=inner * (kernel + state + 3) + rank + 2 * state,
            conv_elements=inner * (kernel - 1),
            ssm_elements=inner * state,
            ssm_dtype=ssm_dtype,
        )
    heads = keys.integer("mamba_n_heads")
    inner = heads * _head_dim(keys, inner, heads)
    mixed = inner + 2 * keys.integer("mamba_n_groups", default=1) * state
    return Recurrence(
        linear_params=hidden * (inner + mixed + heads) + inner * hidden,
        other_params=mixed * (kernel + 1) + 3 * heads + inner,
        conv_elements=mixed * (kernel - 1),
        ssm_elements=inner * state,
        ssm_dtype=ssm_dtype,
    )


def _head_dim(keys: Keys, inner: int, heads: int) -> int:
    written = keys.get("mamba_d_head", default="auto")
    return inner // heads if written == "auto" else keys.integer("mamba_d_head")
