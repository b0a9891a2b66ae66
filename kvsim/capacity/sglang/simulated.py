"""SGLang's pool for a simulation, sized by the options of a scenario."""

from collections.abc import Iterable
from math import ceil
from typing import Any

from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.pool import SizedPool
from kvsim.capacity.sglang.settings import SGLANG_VERSION, SglangSettings
from kvsim.capacity.sglang.sizing import size_sglang
from kvsim.device import Device
from kvsim.layout import KVLayout
from kvsim.model import Model, ModelOptions
from kvsim.plumbing.errors import InputError


def settings_of(memory: MemoryOptions, tables: Iterable[Any]) -> SglangSettings:
    """The flags that `memory` and `tables`, options of schedulers and allocators, have; the first
    table that has one decides.
    """
    fraction, ratio = memory.mem_fraction_static, memory.mamba_full_memory_ratio
    flags: dict[str, Any] = {} if fraction in (None, "auto") else {"mem_fraction_static": fraction}
    if ratio is not None:
        flags["mamba_full_memory_ratio"] = ratio
    if fraction is not None and memory.kv_cache_tokens is not None:
        flags["max_total_tokens"] = memory.kv_cache_tokens
    for table in tables:
        for name in SglangSettings.model_fields.keys() - {"engine_version"}:  # a vLLM scheduler's
            if getattr(table, name, None) is not None:
                flags.setdefault(name, getattr(table, name))
    return SglangSettings.parse(flags, "memory")


def bytes_of_tokens(layout: KVLayout, tokens: int, settings: SglangSettings) -> int:
    """Bytes of a pool with `tokens` as its max_total_num_tokens.

    Windows and cached states take their share in addition to those tokens.
    """
    page, ratio = settings.page_size, settings.mamba_full_memory_ratio
    windows = sum(group.bytes_per_token for group in layout.groups if group.kind == "sliding")
    full, state = layout.bytes_per_token - windows, sum(each.state_bytes for each in layout.groups)
    tokens = tokens // page * page or tokens  # less than a page: its allocator refuses it
    if not full and not windows:
        return _bytes_of_states(state, settings)
    if not full:
        return tokens * windows
    if windows:  # one byte more, as the quotient of floats may lie below a whole number
        return ceil(tokens * (full + settings.swa_full_tokens_ratio * windows)) + 1
    if not state:
        return tokens * full
    slots = settings.max_mamba_cache_size
    if slots is None:  # with the padding one, those of which `states_by_ratio` leaves these tokens
        slots = int(tokens * full * ratio / state) - 1
    return tokens * full + (slots + 1) * state


def _bytes_of_states(state_bytes: int, settings: SglangSettings) -> int:
    """Bytes of the pool of a model with recurrent layers only, in which tokens take no memory."""
    if settings.max_mamba_cache_size is None:
        raise InputError(
            "tokens of a model that keeps recurrent states alone take no memory",
            where="memory.kv_cache_tokens",
            value="given alone",
            remedy="give max_mamba_cache_size of [[allocator]] too, or mem_fraction_static",
        )
    return (settings.max_mamba_cache_size + 1) * state_bytes


def sglang_pool(
    model: Model, device: Device, options: ModelOptions, settings: SglangSettings, block_size: int
) -> SizedPool:
    """The pool of one GPU; the remainder that fills no page stays unused.

    Windows and cached states have a share of its capacity. States that are not cached have a pool
    outside of it, one for each running request.
    """
    found = size_sglang(model, device, options, settings)
    pools, page = found.pools, found.page_size
    beside = pools.state_bytes if settings.disable_radix_cache and pools.kv_bytes else 0
    capacity = pools.kv_bytes + pools.window_bytes + pools.state_bytes - beside
    return SizedPool(
        sized_by="mem_fraction_static",
        total_bytes=found.total_bytes,
        unused_bytes=found.headroom_bytes + found.budget_bytes - capacity - beside,
        weights_bytes=found.weights_bytes,
        activation_bytes=0,
        other_bytes=found.set_up_bytes + beside,
        capacity_bytes=capacity,
        block_size=block_size,
        num_gpu_blocks=pools.tokens // block_size,
        pool_tokens=pools.tokens,
        non_torch_bytes=found.set_up_bytes,
        cuda_graph_bytes=0,
        engine_version=f"sglang {SGLANG_VERSION}",
        engine_block_size=page,
        engine_num_gpu_blocks=pools.tokens // page,
        kv_cache_size_tokens=pools.tokens,
        max_concurrency=pools.tokens / found.max_model_len,
        states=pools.states,
        window_tokens=pools.window_tokens,
    )
