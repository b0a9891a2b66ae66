"""`kvsim memory --free-gpu-memory-fraction`: size the KV pool of a TensorRT-LLM server."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kvsim.commands.memory.memory_tables import MemoryPart, memory_table

if TYPE_CHECKING:
    from kvsim.capacity.pool import SizedPool
    from kvsim.device import Device
    from kvsim.model import ModelOptions


def trt_llm_figures(
    options: "ModelOptions", device: "Device", flags: Mapping[str, Any]
) -> "SizedPool":
    """Size the pool that these TensorRT-LLM flags give."""
    from kvsim.capacity.options import MemoryOptions
    from kvsim.capacity.tensorrt_llm import WAY, trt_llm_pool

    named = {"kv_cache_tokens": "max_tokens", "kv_cache_bytes": "max_gpu_total_bytes"}
    given = {WAY: flags[WAY] if flags[WAY] == "auto" else _number(flags[WAY])}
    given |= {key: flags[flag] for key, flag in named.items() if flags[flag] is not None}
    memory, model = MemoryOptions.parse(given, "memory"), options.build()
    options.check_used(model)
    limits = flags["max_batch_size"], flags["max_num_tokens"]
    return trt_llm_pool(model, device, options, memory, flags["tokens_per_block"], *limits)


def trt_llm_parts(pool: "SizedPool") -> list[MemoryPart]:
    """The uses of a GPU's memory, with the KV cache last."""
    return [
        MemoryPart("weights", pool.weights_bytes),
        MemoryPart("activations (estimate)", pool.activation_bytes),
        MemoryPart("CUDA graphs (estimate)", pool.cuda_graph_bytes),
        MemoryPart("outside torch (estimate)", pool.non_torch_bytes),
        MemoryPart("left free", pool.unused_bytes),
        MemoryPart(f"KV ({pool.pool_tokens:,} tokens)", pool.capacity_bytes, True),
    ]


def answer_trt_llm(
    options: "ModelOptions",
    device: "Device",
    flags: Mapping[str, Any],
    notes: list[str],
    *,
    as_json: bool,
    out: Path | None,
) -> None:
    """Size the pool, and print it as text or as JSON. out: a folder for the page too."""
    from kvsim.capacity.tensorrt_llm import log_lines

    model, pool = options.build(), trt_llm_figures(options, device, flags)
    lines = log_lines(pool)
    table: dict[str, Any] = {"model": model.name, "device": device.name, "engine": "tensorrt-llm"}
    table |= {**pool._asdict(), "log": lines, "notes": notes}
    if out is not None:
        from kvsim.commands.memory.page import write_page

        write_page(out, f"TensorRT-LLM, {model.name}", device.name, trt_llm_parts(pool), table)
    if as_json:
        typer.echo(json.dumps(table, indent=2))
        return
    from rich.console import Console

    console, gpus = Console(), options.tensor_parallel_size
    where = device.name if gpus == 1 else f"{gpus} x {device.name}, figures of one"
    console.print(f"{model.name} on {where}")
    console.print()
    title = f"Memory of one {device.name}"
    console.print(memory_table(title, pool.total_bytes, trt_llm_parts(pool)))
    console.print("TensorRT-LLM would say:", highlight=False)
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    for note in notes:
        typer.echo(f"note: {note}")


def _number(text: str) -> float | str:
    """The text as a number, or unchanged if it is none, so that validation can quote it in the
    error.
    """
    try:
        return float(text)
    except ValueError:
        return text
