"""One log against kvsim: the pool sized from the settings, and the tokens of the log's own pool."""

from typing import NamedTuple

from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.pool import Pool, size_pool
from kvsim.model import Model, ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.validate.logs.row import LogRow
from kvsim.validate.logs.settings import (
    Machine,
    RefusalError,
    read_machine,
    read_scheme,
    read_version,
)

BLOCK_SIZE = 16


class Outcome(NamedTuple):
    """What came of one row.

    state: "sized"; "refused" (the row gives too little, or the engine itself refused: `reason`);
    "unknown" (kvsim does not know the model or the device: `reason`). The figures are GiB of one
    GPU, the log's beside kvsim's; error: of the pool, as a share of the log's.
    """

    id: str
    model: str
    gpu: str
    state: str
    reason: str = ""
    log_gib: float | None = None
    pool_gib: float | None = None
    error: float | None = None
    log_weights_gib: float | None = None
    weights_gib: float | None = None


def compare(row: LogRow) -> Outcome:
    """Size the pool of a row from its settings and hold it against the log."""
    plain = Outcome(row.id, row.model, row.gpu, "refused", log_weights_gib=row.weights_gib)
    try:
        version = read_version(row.engine_version)
        options = _model_options(row)
        model = options.build(offline=True)
        log_gib = _log_gib(row, model, options)
        machine = read_machine(row.gpu, None)
        pool = _pool(row, version.name, machine, model, options)
    except RefusalError as refusal:
        return plain._replace(reason=str(refusal))
    except InputError as error:
        return plain._replace(state="unknown", reason=str(error))
    sized = plain._replace(pool_gib=pool.capacity_bytes / GIB, weights_gib=pool.weights_bytes / GIB)
    if log_gib is None:
        return sized._replace(reason="the log gives no pool")
    off = pool.capacity_bytes / GIB / log_gib - 1
    return sized._replace(state="sized", log_gib=log_gib, error=off)


def _model_options(row: LogRow) -> ModelOptions:
    return ModelOptions.parse(
        {
            "name": row.model,
            "quantization": read_scheme(row.quantization),
            "dtype": row.dtype,
            "kv_cache_dtype": row.kv_cache_dtype,
            "tensor_parallel_size": row.tp,
            "max_model_len": row.max_model_len,
        },
        row.id,
    )


def _log_gib(row: LogRow, model: Model, options: ModelOptions) -> float | None:
    """The log's pool: as it prints it, or from its blocks or tokens."""
    if row.pool_gib is not None:
        if row.pool_gib <= 0:
            raise RefusalError("the engine found no memory for KV and did not start")
        return row.pool_gib
    token_bytes = options.layout(model).bytes_per_token
    if row.num_gpu_blocks:
        return row.num_gpu_blocks * (row.block_size or BLOCK_SIZE) * token_bytes / GIB
    if row.pool_tokens is not None:
        return row.pool_tokens * token_bytes / GIB
    return None


def _pool(row: LogRow, version: str, machine: Machine, model: Model, options: ModelOptions) -> Pool:
    memory = MemoryOptions(
        gpu_memory_utilization=row.utilization,
        engine_version=version,
        enforce_eager=row.enforce_eager,
    )
    device = machine.device
    seqs, tokens = memory.version.default_limits(device.memory_bytes, device.name)
    return size_pool(
        model,
        device,
        memory,
        options,
        row.block_size or BLOCK_SIZE,
        row.max_num_seqs or seqs,
        row.max_num_batched_tokens or tokens,
    )
