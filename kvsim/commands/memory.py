"""`kvsim memory MODEL --device D`: what a token costs, what the pool holds, how many fit."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kvsim.capacity.fits import Fit
    from kvsim.capacity.pool import Pool
    from kvsim.device import Device
    from kvsim.layout import KVGroup, KVLayout
    from kvsim.model import Model, ModelOptions

SHORTEST_TOKENS = 512


class Answer(NamedTuple):
    """What the command found out."""

    model: "Model"
    options: "ModelOptions"
    device: "Device"
    layout: "KVLayout"
    max_model_len: int
    pool: "Pool"
    fits: "list[Fit]"


def memory(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Built-in name, Hugging Face id, or path of a config.json."
        ),
    ],
    device: Annotated[str, typer.Option(help="GPU, such as a100-80gb or h200.")],
    tensor_parallel_size: Annotated[int, typer.Option(help="GPUs the model is split over.")] = 1,
    dtype: Annotated[str | None, typer.Option(help="Of weights: float16, bfloat16, ...")] = None,
    quantization: Annotated[
        str | None, typer.Option(help="Of weights: none, fp8, int8, int4, nvfp4, mxfp4.")
    ] = None,
    kv_cache_dtype: Annotated[
        str, typer.Option(help="auto, bf16, fp8, nvfp4, fp8_per_token_head, fp8_ds_mla, int8, ...")
    ] = "auto",
    gpu_memory_utilization: Annotated[
        float | None,
        typer.Option(help="Share of the device to use.", show_default="0.92, before 0.20: 0.9"),
    ] = None,
    engine_version: Annotated[
        str, typer.Option(help="Of vLLM, such as 0.19 or V0: it sizes the pool by its rules.")
    ] = "0.33",
    kv_cache_bytes: Annotated[int | None, typer.Option(help="The pool, in bytes.")] = None,
    kv_cache_tokens: Annotated[int | None, typer.Option(help="The pool, in tokens.")] = None,
    num_gpu_blocks: Annotated[int | None, typer.Option(help="The pool, in blocks.")] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="Longest sequence in tokens.", show_default="the model's")
    ] = None,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Sequences in a step.")] = 256,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, help="Tokens in a step.")] = 2048,
    enforce_eager: Annotated[bool, typer.Option(help="Without CUDA graphs.")] = False,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens in a block (paged).")] = 16,
    initial_tokens: Annotated[int, typer.Option(min=1, help="First buffer (doubling).")] = 256,
    num_tokens: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Length of sequences to fit; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False,
) -> None:
    """Show what MODEL's KV cache costs on a GPU: bytes per token, pool, and how many sequences fit.

    All figures are for one GPU of tensor_parallel_size.
    """
    from kvsim.capacity.fits import fit
    from kvsim.capacity.options import MemoryOptions
    from kvsim.capacity.pool import size_pool
    from kvsim.device import DeviceOptions
    from kvsim.model import ModelOptions

    path = Path(model)
    is_path = path.suffix == ".json" or (path / "config.json").is_file()
    options = ModelOptions.parse(
        {
            "hf_config" if is_path else "name": model,
            "dtype": dtype,
            "quantization": quantization,
            "kv_cache_dtype": kv_cache_dtype,
            "tensor_parallel_size": tensor_parallel_size,
            "max_model_len": max_model_len,
        },
        "model",
    )
    gpu = DeviceOptions(name=device).build()
    built = options.build()
    reserve = MemoryOptions.parse(
        {
            "gpu_memory_utilization": gpu_memory_utilization,
            "kv_cache_bytes": kv_cache_bytes,
            "kv_cache_tokens": kv_cache_tokens,
            "num_gpu_blocks": num_gpu_blocks,
            "engine_version": engine_version,
            "enforce_eager": enforce_eager,
        },
        "memory",
    )
    pool = size_pool(built, gpu, reserve, options, block_size, max_num_seqs, max_num_batched_tokens)
    layout, longest = options.layout(built), options.model_len(built)
    fits = [
        fit(
            layout,
            pool.capacity_bytes,
            tokens,
            max_model_len=longest,
            block_size=block_size,
            initial_tokens=initial_tokens,
        )
        for tokens in _lengths(num_tokens, longest)
    ]
    answer = Answer(built, options, gpu, layout, longest, pool, fits)
    if as_json:
        typer.echo(json.dumps(_as_json(answer), indent=2))
    else:
        from rich.console import Console

        _print(answer, Console())


def _lengths(given: Sequence[int] | None, longest: int) -> list[int]:
    """The lengths asked for, or powers of two up to the longest sequence, and that."""
    from kvsim.plumbing.errors import InputError

    if not given:
        lengths = [SHORTEST_TOKENS << i for i in range(64) if SHORTEST_TOKENS << i < longest]
        return [*lengths, longest]
    for tokens in given:
        if tokens > longest:
            raise InputError(
                "a sequence cannot be so long",
                where="--num-tokens",
                value=tokens,
                limit=f"{longest} tokens (max_model_len)",
            )
    return list(dict.fromkeys(given))


def _as_json(answer: Answer) -> dict[str, Any]:
    model, pool, layout = answer.model, answer.pool, answer.layout
    return {
        "model": model.name,
        "source": model.source,
        "num_params": model.num_params,
        "num_active_params": model.num_active_params,
        "device": answer.device.name,
        "tensor_parallel_size": answer.options.tensor_parallel_size,
        "kv_cache_dtype": answer.options.kv_cache_dtype,
        "max_model_len": answer.max_model_len,
        "bytes_per_token": layout.bytes_per_token,
        "groups": [
            {
                "kind": group.kind,
                "layers": group.layers,
                "bytes_per_token": group.bytes_per_token,
                "window_tokens": group.window_tokens,
                "state_bytes": group.state_bytes,
            }
            for group in layout.groups
        ],
        "sized_by": pool.sized_by,
        "device_bytes": pool.total_bytes,
        "unused_bytes": pool.unused_bytes,
        "weights_bytes": pool.weights_bytes,
        "activation_bytes": pool.activation_bytes,
        "other_bytes": pool.other_bytes,
        "non_torch_bytes": pool.non_torch_bytes,
        "cuda_graph_bytes": pool.cuda_graph_bytes,
        "pool_bytes": pool.capacity_bytes,
        "pool_tokens": pool.capacity_bytes // layout.bytes_per_token,
        "block_size": pool.block_size,
        "num_gpu_blocks": pool.num_gpu_blocks,
        "sequences": [fit._asdict() for fit in answer.fits],
    }


def _print(answer: Answer, console: "Console") -> None:
    model, tp = answer.model, answer.options.tensor_parallel_size
    active = f", {model.num_active_params / 1e9:.3g} active" if _is_sparse(model) else ""
    gpus = f"{tp} x {answer.device.name}, figures of one" if tp > 1 else answer.device.name
    console.print(f"{model.name}: {model.num_params / 1e9:.3g} B parameters{active}; on {gpus}")
    for table in (_groups(answer.layout.groups), _pool(answer), _sequences(answer)):
        console.print()
        console.print(table)


def _is_sparse(model: "Model") -> bool:
    return model.num_active_params < model.num_params


def _table(title: str, *columns: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    return table


def _groups(groups: "Sequence[KVGroup]") -> "Table":
    table = _table("KV cache", "layers", "count", "per token", "window", "per sequence")
    for group in groups:
        window = group.window_tokens
        capped = f"at most {_size(group.bytes_per_token * window)}" if window else "grows"
        table.add_row(
            group.kind,
            str(group.layers),
            _size(group.bytes_per_token),
            f"{window:,}" if window else "",
            _size(group.state_bytes) if group.kind == "recurrent" else capped,
        )
    if len(groups) > 1:
        total = sum(group.bytes_per_token for group in groups)
        table.add_row("all", str(sum(g.layers for g in groups)), _size(total), "", "", style="bold")
    return table


def _pool(answer: Answer) -> "Table":
    pool = answer.pool
    table = _table(f"Memory of one {answer.device.name}", "", "bytes", "")
    if pool.sized_by == "gpu_memory_utilization":
        table.add_row("device", f"{pool.total_bytes:,}", _size(pool.total_bytes))
        for words, size in (
            ("left unused", pool.unused_bytes),
            ("weights", pool.weights_bytes),
            ("activations (estimate)", pool.activation_bytes),
            ("CUDA graphs (estimate)", pool.cuda_graph_bytes),
            ("outside torch (estimate)", pool.non_torch_bytes),
        ):
            table.add_row(words, f"-{size:,}", _size(size))
    else:
        table.add_row("weights", f"{pool.weights_bytes:,}", _size(pool.weights_bytes))
    size = pool.capacity_bytes
    words = "KV pool" if pool.sized_by == "gpu_memory_utilization" else f"KV pool ({pool.sized_by})"
    table.add_row(words, f"{size:,}", _size(size), style="bold")
    tokens = size // answer.layout.bytes_per_token
    table.add_row("", f"{tokens:,} tokens", f"{pool.num_gpu_blocks:,} blocks of {pool.block_size}")
    return table


def _sequences(answer: Answer) -> "Table":
    title = f"Sequences that fit (longest {answer.max_model_len:,} tokens)"
    table = _table(title, "tokens each", "needs", "max-buffer", "doubling", "paged")
    for fit in answer.fits:
        counts = (f"{count:,}" for count in (fit.max_buffer, fit.doubling, fit.paged))
        table.add_row(f"{fit.tokens:,}", _size(fit.bytes), *counts)
    return table


def _size(size: int) -> str:
    """Bytes as people read them: B, KiB, MiB or GiB."""
    scaled, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if scaled < 1024:
            break
        scaled, unit = scaled / 1024, larger
    return f"{scaled:.2f}".rstrip("0").rstrip(".") + f" {unit}"
