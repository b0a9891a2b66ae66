"""The KV pool of an engine, from the blocks, tokens or bytes that the engine prints.

One block of the engine holds tokens of one group of layers. Its size, and the number of tokens
printed for a number of blocks, follow from the model's cache plan (`kvsim.capacity.planning`).
"""

from typing import Any, NamedTuple

from kvsim.capacity.engine_counts import blocks_that_print, is_whole, tokens_printed
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.planning import CachePlan
from kvsim.capacity.sizing import size
from kvsim.device import named_device
from kvsim.interchange.to_scenario.cells import cells_bytes
from kvsim.interchange.to_scenario.served import ServedModel
from kvsim.layout import KVLayout
from kvsim.observed.vllm_defaults import release
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB, ceil_div
from kvsim.readers.description import ServerSettings
from kvsim.vllm.rules import SizingRules

_PROBE_BYTES = 1 << 40  # a plan does not depend on the pool
_V1 = (0, 8)
_ROUNDED = 0.02  # of a pool in GiB with two digits


class Unit(NamedTuple):
    """One block of the engine. bytes includes padding. whole: the block holds its tokens in all
    layers.

    plan and version determine how the engine counts blocks and tokens; None if unknown.
    """

    bytes: int
    whole: bool
    plan: CachePlan | None = None
    version: SizingRules | None = None


class FoundPool(NamedTuple):
    """The KV pool for a scenario.

    memory is the table [memory]. blocks is the number of blocks that hold their tokens in all
    layers; None if no source gives the size.
    """

    memory: dict[str, Any]
    blocks: int | None


def pool_of(
    settings: ServerSettings, served: ServedModel, device: str, meta: VllmMeta, notes: list[str]
) -> FoundPool:
    """The KV pool; notes say what was estimated or rounded. meta has all settings
    except the pool.
    """
    vllm = (settings.engine or "vllm") == "vllm"
    block = meta.block_size
    if served.options is None or served.model is None:
        return _of_unknown_layers(settings, block, meta, notes)
    layout = served.options.layout(served.model)
    if not layout.bytes_per_token:
        return _of_unknown_layers(settings, block, meta, notes)
    if settings.engine == "sglang" and settings.kv_cache_tokens is not None:
        tokens = settings.kv_cache_tokens // block * block  # whole pages
        return FoundPool({"kv_cache_tokens": tokens}, max(tokens // block, 2))
    if settings.engine == "llama.cpp":
        total = cells_bytes(settings, layout, served.model.max_position_embeddings, notes)
        return FoundPool({"kv_cache_bytes": total}, _whole_blocks(total, layout, block))
    unit = _unit(served, device, settings, meta) if vllm else None
    if unit is None:
        unit = Unit(block * layout.bytes_per_token, whole=True)
    number = _number(settings, unit, block, notes)
    if number is None:
        return FoundPool(_estimated(settings, meta, notes), None)
    total = number * unit.bytes
    known = settings.available_kv_gib
    stages = settings.pipeline_parallel_size or 1  # each keeps its layers' part of a block
    if known is not None and total > known * GIB * stages * (1 + _ROUNDED):
        notes.append(
            f"{number:,} blocks of this model would be {total / GIB:.2f} GiB, more than the "
            f"{known:g} GiB of the log, which are taken: is it split over more GPUs than the "
            "sources say?"
        )
        total = round(known * GIB)
        number, unit = total // unit.bytes, unit._replace(whole=False)
    blocks = _whole_blocks(total, layout, block)
    if unit.whole:
        return FoundPool({"num_gpu_blocks": number}, blocks)
    notes.append(f"{number:,} blocks, each of one group of layers: {total:,} bytes")
    return FoundPool({"kv_cache_bytes": total}, blocks)


def _whole_blocks(total: int, layout: KVLayout, block: int) -> int:
    return max(total // (block * layout.bytes_per_token), 2)


def _unit(
    served: ServedModel, device: str, settings: ServerSettings, meta: VllmMeta
) -> Unit | None:
    """The block of vLLM for this model; None if kvsim cannot plan the model's cache."""
    assert served.model is not None
    assert served.options is not None
    if settings.disable_hybrid_kv_cache_manager or release(meta.vllm_version) < _V1:
        return None
    try:
        probe = {
            "kv_cache_bytes": _PROBE_BYTES,
            "engine_version": meta.vllm_version,
            "enable_prefix_caching": meta.enable_prefix_caching,
        }
        memory = MemoryOptions.parse(probe, "memory")
        sized = size(
            served.model,
            named_device(device),
            memory,
            served.options,
            meta.block_size,
            meta.max_num_seqs,
            meta.max_num_batched_tokens,
        )
    except InputError:
        return None
    plan, layout = sized.plan, sized.layout
    whole = is_whole(plan, layout, meta.block_size)
    return Unit(plan.bytes_per_block, whole, plan, memory.version.sizing)


def _number(settings: ServerSettings, unit: Unit, block: int, notes: list[str]) -> int | None:
    """The number of the engine's blocks; None if no source gives the pool's size."""
    if settings.num_gpu_blocks is not None:
        return settings.num_gpu_blocks
    tokens = settings.kv_cache_tokens
    if tokens is not None and unit.plan is not None and unit.version is not None:
        number = blocks_that_print(unit.plan, unit.version, tokens)
        if tokens_printed(unit.plan, unit.version, number) == tokens:
            return number
    elif tokens is not None:
        return max(tokens // block, 1)
    total = _bytes(settings, notes)
    if total is not None:
        return max(total // unit.bytes, 1)
    if tokens is not None:
        notes.append(f"{tokens:,} tokens are not what this engine would say of any pool")
        return max(tokens // block, 1)
    return None


def _bytes(settings: ServerSettings, notes: list[str]) -> int | None:
    """The pool in bytes, exact or as rounded in a log; None if no source gives bytes."""
    if settings.kv_cache_bytes is not None or settings.available_kv_gib is None:
        return settings.kv_cache_bytes
    notes.append(f"the pool is {settings.available_kv_gib:g} GiB, as the log rounds it")
    return round(settings.available_kv_gib * GIB)


def _of_unknown_layers(
    settings: ServerSettings, block: int, meta: VllmMeta, notes: list[str]
) -> FoundPool:
    """The pool for a model that kvsim does not know; all layers are assumed to be of one kind."""
    number = settings.num_gpu_blocks
    if number is None and settings.kv_cache_tokens is not None:
        number = max(ceil_div(settings.kv_cache_tokens, block), 1)
    if number is not None:
        return FoundPool({"num_gpu_blocks": number}, max(number, 2))
    total = _bytes(settings, notes)
    if total is not None:
        return FoundPool({"kv_cache_bytes": total}, None)
    return FoundPool(_estimated(settings, meta, notes), None)


def _estimated(settings: ServerSettings, meta: VllmMeta, notes: list[str]) -> dict[str, Any]:
    """Keys of [memory] from which kvsim computes the size of the pool.

    Over pipeline stages SGLang's size is not computed, so max_total_tokens is taken as the size.
    """
    staged = (settings.pipeline_parallel_size or 1) > 1
    if settings.engine == "sglang" and staged and settings.max_total_tokens is not None:
        notes.append("the pool is max_total_tokens: SGLang's memory over stages is not computed")
        return {"kv_cache_tokens": settings.max_total_tokens}
    notes.append("no source has the size of the pool: kvsim sizes it as the engine does")
    table: dict[str, Any] = {}
    if settings.gpu_memory_utilization is not None:
        table["gpu_memory_utilization"] = settings.gpu_memory_utilization
    if (settings.engine or "vllm") == "vllm":
        old = release(meta.vllm_version) < _V1
        table["engine_version"] = "V0" if old else meta.vllm_version
        if settings.max_cudagraph_capture_size:
            table["max_cudagraph_capture_size"] = settings.max_cudagraph_capture_size
        if settings.enable_lora:
            table["max_loras"] = settings.max_loras or 1
            if settings.max_lora_rank is not None:
                table["max_lora_rank"] = settings.max_lora_rank
    elif settings.engine == "sglang":
        table["mem_fraction_static"] = settings.mem_fraction_static or "auto"
        if settings.mamba_full_memory_ratio is not None:
            table["mamba_full_memory_ratio"] = settings.mamba_full_memory_ratio
        if settings.max_total_tokens is not None:
            table["kv_cache_tokens"] = settings.max_total_tokens
    elif settings.engine == "tensorrt-llm":
        table["free_gpu_memory_fraction"] = settings.free_gpu_memory_fraction or "auto"
    if settings.enforce_eager and settings.engine != "sglang":
        table["enforce_eager"] = True
    if settings.weights_gib is not None and settings.engine == "sglang":
        weights = f"{settings.weights_gib:g} GiB of weights"
        notes.append(f"the log's {weights} are not used: kvsim counts them itself")
    elif settings.weights_gib is not None:
        table["weights_gib"] = settings.weights_gib
    return table
