"""How SGLang caches recurrent states (--mamba-radix-cache-strategy, 0.5.23:
arg_groups/overrides.py, mem_cache/allocation_sizing.py).
"""

from typing import Literal

from kvsim.plumbing.errors import InputError

STATES_RATIO = 0.9  # bytes of states for each byte of KV, by default

Strategy = Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"]
StrategyFlag = Literal["auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"]


def resolved(flag: StrategyFlag, page_size: int, *, overlaps: bool, alone: bool) -> Strategy:
    """The strategy that "auto" means. overlaps: a step is scheduled before the previous one has
    returned. alone: all layers are recurrent; SGLang starts no server that buffers states for such
    a model (model_hook.py: "needs mamba state"). InputError for a flag that asks for one.
    """
    if alone and flag not in ("auto", "no_buffer"):
        raise InputError(
            "SGLang 0.5.23 keeps buffers for states only in models with attention",
            where="allocator.mamba_radix_cache_strategy",
            value=flag,
            limit="no_buffer where all layers keep recurrent states",
            remedy="leave it out",
        )
    if flag != "auto":
        return flag
    return "extra_buffer" if not alone and (overlaps or page_size > 1) else "no_buffer"


def states_a_request(strategy: Strategy, *, overlaps: bool, caching: bool) -> int:
    """Most recurrent states of a running request at once, including states that are about to enter
    the radix tree. caching: there is a tree.
    """
    if not caching:
        return 1
    if strategy == "extra_buffer":
        return 4 + overlaps
    return 3 if strategy == "no_buffer" else 4


def states_by_ratio(capacity_bytes: int, state_bytes: int, ratio: float) -> int:
    """Number of states in a memory budget shared with KV, at `ratio` bytes of states for each byte
    of KV. The extra slot for padding is not counted.
    """
    return int((capacity_bytes * ratio / (1 + ratio) - state_bytes) // state_bytes)
