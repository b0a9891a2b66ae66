"""Compare one log with kvsim: the pool sized from the settings, and the tokens of the logged pool.

The two comparisons are separate. The first tests weights and reserved memory. The second takes the
pool's bytes from the log, and tests the KV bytes per token and the plan of blocks.
"""

from dataclasses import replace
from typing import NamedTuple

from evidence.logs.other_engines import TRT_LLM, engine_of, size_other
from evidence.logs.row import LogRow
from evidence.logs.settings import (
    Notes,
    RefusalError,
    read_device,
    read_kv_dtype,
    read_model,
    read_notes,
    read_scheme,
    read_version,
)
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.pool import Sized
from kvsim.capacity.sizing import size
from kvsim.device import Device, sized_device
from kvsim.model import Model, ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB

BLOCK_SIZE = 16
KV_DTYPE = "kv_cache_dtype"
# Words of an error that refuses a model by name.
REFUSING = ("this architecture is not understood", "not followed")


class Outcome(NamedTuple):
    """Result of one row.

    state: "sized", "refused" or "unknown". A row is refused if it gives too little, if the engine
    refused to start, or if kvsim does not support the architecture. It is unknown if kvsim does not
    know the model or the device. reason: why the row is not sized. Sizes are GiB on one GPU, by the
    log and by kvsim. error: of the pool, relative to the log. assumed: settings missing in the row
    and set to the engine's defaults. log_tokens, tokens: tokens of the logged pool by the log and
    by kvsim; tokens_error: their relative difference. log_block_size, block_size: tokens per
    attention block, if logged.
    """

    id: str
    model: str
    gpu: str
    state: str
    reason: str = ""
    assumed: tuple[str, ...] = ()
    log_gib: float | None = None
    pool_gib: float | None = None
    error: float | None = None
    log_weights_gib: float | None = None
    weights_gib: float | None = None
    log_tokens: int | None = None
    tokens: int | None = None
    tokens_error: float | None = None
    log_block_size: int | None = None
    block_size: int | None = None


class Server(NamedTuple):
    """The row as kvsim's options."""

    row: LogRow
    model: Model
    options: ModelOptions
    memory: MemoryOptions


def compare(row: LogRow) -> Outcome:
    """Size the pool of a row from its settings, and compare it with the log."""
    found = Outcome(row.id, row.model, row.gpu, "refused", log_weights_gib=row.weights_gib)
    engine = engine_of(row.engine_version)
    try:
        if engine is not None:
            return _of_other_engine(found, engine, row)
        server = _server(row)
    except RefusalError as refusal:
        return found._replace(reason=str(refusal))
    except InputError as error:
        state = "refused" if any(words in error.what for words in REFUSING) else "unknown"
        return found._replace(state=state, reason=str(error))
    try:
        found = _with_tokens(found, server)
        device = read_device(row.gpu)
        log_gib = _log_gib(server)
        sized = _size(server, device)
    except RefusalError as refusal:
        return found._replace(reason=str(refusal))
    except InputError as error:
        return found._replace(state="unknown", reason=str(error))
    pool = sized.pool
    return found._replace(
        state="sized",
        assumed=_open(row, packed=sized.plan.packed, samples=_samples(server)),
        log_gib=log_gib,
        pool_gib=pool.capacity_bytes / GIB,
        error=pool.capacity_bytes / GIB / log_gib - 1,
        weights_gib=pool.weights_bytes / GIB,
    )


def _of_other_engine(found: Outcome, engine: str, row: LogRow) -> Outcome:
    """The outcome of a row of SGLang or TensorRT-LLM."""
    notes = read_notes(row.notes)
    if notes.drafted:
        raise RefusalError("the pool of this engine with a drafter's cache is not sized")
    if row.pool_gib is None and row.pool_tokens is None:
        raise RefusalError("the log gives no pool")
    options, model = _model(row, notes)
    sized = size_other(engine, row, model, options, read_device(row.gpu))
    log_gib = row.pool_gib
    if log_gib is None and row.pool_tokens is not None:
        log_gib = row.pool_tokens * sized.pool_bytes / sized.tokens / GIB
    elif log_gib is not None and row.pool_tokens is not None and row.kv_cache_dtype:
        tokens = sized.tokens_in(round(log_gib * GIB))
        error = tokens / row.pool_tokens - 1
        found = found._replace(log_tokens=row.pool_tokens, tokens=tokens, tokens_error=error)
    assert log_gib is not None
    return found._replace(
        state="sized",
        assumed=tuple(key for key in _open(row, packed=engine == TRT_LLM) if key != KV_DTYPE),
        log_gib=log_gib,
        pool_gib=sized.pool_bytes / GIB,
        error=sized.pool_bytes / GIB / log_gib - 1,
        weights_gib=sized.weights_bytes / GIB,
    )


def _samples(server: Server) -> bool:
    """Whether the row, or its engine version, determines which sampler runs."""
    memory = server.memory
    return (
        memory.flashinfer_sampler is not None or not memory.version.sizing.flashinfer_if_installed
    )


def _open(row: LogRow, *, packed: bool, samples: bool = True) -> tuple[str, ...]:
    """Names of settings that affect the pool and that the row does not give.

    packed: sliding windows take as much as one step can add, so that the token budget matters.
    samples: whether the sampler is known.
    """
    given = {
        "gpu_memory_utilization": row.utilization is not None,
        KV_DTYPE: bool(row.kv_cache_dtype) or row.pool_gib is not None,
        "max_num_batched_tokens": row.max_num_batched_tokens is not None or not packed,
        "flashinfer_sampler": samples,
    }
    return tuple(name for name, known in given.items() if not known)


def _server(row: LogRow) -> Server:
    version, notes = read_version(row.engine_version), read_notes(row.notes)
    options, model = _model(row, notes)
    memory = MemoryOptions.parse(
        {
            "gpu_memory_utilization": row.utilization,
            "engine_version": version.name,
            "enforce_eager": row.enforce_eager,
            "enable_prefix_caching": notes.prefix_caching,
            "drafter": "mtp" if notes.drafted else None,
            "num_speculative_tokens": notes.drafted or 1,
            "max_cudagraph_capture_size": notes.largest_graph,
            "flashinfer_sampler": notes.flashinfer,
        },
        row.id,
    )
    return Server(row, model, options, memory)


def _model(row: LogRow, notes: Notes) -> tuple[ModelOptions, Model]:
    """The options of the served model, and the model."""
    options = ModelOptions.parse(
        {
            "name": read_model(row.model),
            "quantization": read_scheme(row.quantization),
            "dtype": None if row.dtype == "auto" else row.dtype,
            "kv_cache_dtype": read_kv_dtype(row.kv_cache_dtype),
            "mamba_ssm_cache_dtype": notes.states,
            "tensor_parallel_size": row.tp,
            "pipeline_parallel_size": row.pp,
            "data_parallel_size": row.dp,
            "enable_expert_parallel": notes.expert_parallel,
            "max_model_len": row.max_model_len,
        },
        row.id,
    )
    # What the repository's config or name says of its weights is more than the column does.
    named = options.model_copy(update={"quantization": None}).build(offline=True)
    model = named if named.is_quantized else options.build(offline=True)
    if row.max_model_len is not None and row.max_model_len > model.max_position_embeddings:
        # Positions stretched by a flag, as the engine allowed.
        model = replace(model, max_position_embeddings=row.max_model_len)
    return options, model


def _size(server: Server, device: Device, pool_bytes: int | None = None) -> Sized:
    """The pool as kvsim sizes it; with pool_bytes, the blocks and tokens of a pool of that size."""
    row, memory = server.row, server.memory
    if pool_bytes is not None:
        given = {"kv_cache_bytes": pool_bytes, "gpu_memory_utilization": None}
        memory = memory.model_copy(update=given)
    seqs, tokens = memory.version.sizing.default_limits(device.memory_bytes, device.name)
    return size(
        server.model,
        device,
        memory,
        server.options,
        row.block_size or BLOCK_SIZE,
        row.max_num_seqs or seqs,
        row.max_num_batched_tokens or tokens,
    )


def _device_for_tokens(gpu: str) -> Device:
    """The row's device, which decides default limits; if the row names none, a small GPU."""
    try:
        return read_device(gpu)
    except (RefusalError, InputError):
        return sized_device("unknown", 1.0)


def _with_tokens(found: Outcome, server: Server) -> Outcome:
    """Add the tokens of the logged pool, if the log gives bytes, tokens and KV dtype."""
    row = server.row
    if row.pool_gib is None or row.pool_gib <= 0 or row.pp > 1 or not row.kv_cache_dtype:
        return found
    sized = _size(server, _device_for_tokens(row.gpu), int(row.pool_gib * GIB))
    if row.attention_block_size is not None:
        found = found._replace(
            log_block_size=row.attention_block_size, block_size=sized.plan.block_size
        )
    if row.pool_tokens is None:
        return found
    tokens = sized.start_up.kv_cache_size_tokens
    return found._replace(
        log_tokens=row.pool_tokens, tokens=tokens, tokens_error=tokens / row.pool_tokens - 1
    )


def _log_gib(server: Server) -> float:
    """The logged pool in GiB on one GPU: as printed, or computed from its blocks or tokens.

    With pipeline stages a log prints the pool of the first stage, which need not be the limiting
    one.
    """
    row = server.row
    if row.pool_gib is not None and row.pool_gib <= 0:
        raise RefusalError("the engine found no memory for KV and did not start")
    if "kv_cache_memory_bytes" in row.notes:
        raise RefusalError("the pool was given, not sized (kv_cache_memory_bytes)")
    if row.pool_gib is not None and row.pp == 1:
        return row.pool_gib
    sized = _size(server, _device_for_tokens(row.gpu), pool_bytes=GIB)
    plan = sized.plan
    if plan.packed and row.max_num_batched_tokens is None:
        raise RefusalError(
            "the log gives tokens alone, and not max_num_batched_tokens, on which their bytes "
            "depend"
        )
    if row.num_gpu_blocks:
        return row.num_gpu_blocks * plan.bytes_per_block / GIB
    if row.pool_tokens is not None and plan.serving.max_model_len:
        if server.memory.version.sizing.tokens_by_concurrency:
            longest = plan.serving.max_model_len
            blocks = row.pool_tokens / longest * plan.blocks_of(longest)
        else:
            blocks = row.pool_tokens / plan.block_size * len(plan.groups)
        return blocks * plan.bytes_per_block / GIB
    if row.pool_gib is not None:
        return row.pool_gib
    raise RefusalError("the log gives no pool")
