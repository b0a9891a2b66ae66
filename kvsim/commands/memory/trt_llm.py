"""`kvsim memory --free-gpu-memory-fraction`: the pool of a TensorRT-LLM server."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from kvsim.capacity.pool import SizedPool
    from kvsim.device import Device
    from kvsim.model import ModelOptions


def trt_llm_figures(
    options: "ModelOptions", device: "Device", flags: Mapping[str, Any]
) -> "SizedPool":
    """The pool by the flags of TensorRT-LLM."""
    from kvsim.capacity.options import MemoryOptions
    from kvsim.capacity.tensorrt_llm import WAY, trt_llm_pool

    named = {"kv_cache_tokens": "max_tokens", "kv_cache_bytes": "max_gpu_total_bytes"}
    given = {WAY: flags[WAY] if flags[WAY] == "auto" else _number(flags[WAY])}
    given |= {key: flags[flag] for key, flag in named.items() if flags[flag] is not None}
    memory, model = MemoryOptions.parse(given, "memory"), options.build()
    options.check_used(model)
    limits = flags["max_batch_size"], flags["max_num_tokens"]
    return trt_llm_pool(model, device, options, memory, flags["tokens_per_block"], *limits)


def answer_trt_llm(
    options: "ModelOptions",
    device: "Device",
    flags: Mapping[str, Any],
    notes: list[str],
    *,
    as_json: bool,
) -> None:
    """Size the pool, and print it as text or as JSON."""
    from kvsim.capacity.tensorrt_llm import log_lines

    model, pool = options.build(), trt_llm_figures(options, device, flags)
    lines = log_lines(pool)
    if as_json:
        table = {"model": model.name, "device": device.name, "engine": "tensorrt-llm"}
        typer.echo(json.dumps({**table, **pool._asdict(), "log": lines, "notes": notes}, indent=2))
        return
    from rich.console import Console

    from kvsim.commands.memory.memory_tables import size_words
    from kvsim.commands.terminal_tables import numbers_table

    console, gpus = Console(), options.tensor_parallel_size
    where = device.name if gpus == 1 else f"{gpus} x {device.name}, figures of one"
    console.print(f"{model.name} on {where}")
    console.print()
    shown = numbers_table("", "bytes", "", title=f"Memory of one {device.name}")
    for words, size, sign in (
        ("device", pool.total_bytes, 1),
        ("weights", pool.weights_bytes, -1),
        ("activations (estimate)", pool.activation_bytes, -1),
        ("CUDA graphs (estimate)", pool.cuda_graph_bytes, -1),
        ("outside torch (estimate)", pool.non_torch_bytes, -1),
        ("left free", pool.unused_bytes, -1),
    ):
        shown.add_row(words, f"{sign * size:,}", size_words(size))
    size = pool.capacity_bytes
    words = f"KV ({pool.pool_tokens:,} tokens)"
    shown.add_row(words, f"{size:,}", size_words(size), style="bold")
    console.print(shown)
    console.print("TensorRT-LLM would say:", highlight=False)
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    for note in notes:
        typer.echo(f"note: {note}")


def _number(text: str) -> float | str:
    """The share, or the text itself, for the message that refuses it."""
    try:
        return float(text)
    except ValueError:
        return text
