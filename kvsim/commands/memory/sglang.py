"""`kvsim memory --mem-fraction-static`: the pools of an SGLang server."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from kvsim.commands.memory.flags import PANELS, SGLANG

if TYPE_CHECKING:
    from kvsim.capacity.sglang.sizing import SglangPool
    from kvsim.device import Device
    from kvsim.model import Model, ModelOptions

SWITCH = "mem_fraction_static"
FLAGS = (*PANELS[SGLANG], "weights_gib", "engine_version")


def sglang_figures(
    options: "ModelOptions", device: "Device", flags: Mapping[str, Any]
) -> "SglangPool":
    """The pools by the flags of SGLang."""
    from kvsim.capacity.sglang.settings import SglangSettings
    from kvsim.capacity.sglang.sizing import size_sglang

    given = {key: flags[key] for key in FLAGS if flags[key] not in (None, "auto")}
    model = options.build()
    options.check_used(model)
    return size_sglang(model, device, options, SglangSettings.parse(given, "memory"))


def answer_sglang(
    options: "ModelOptions",
    device: "Device",
    flags: Mapping[str, Any],
    notes: list[str],
    *,
    as_json: bool,
) -> None:
    """Size the pools, and print them as text or as JSON."""
    from kvsim.capacity.held_out import expected_error
    from kvsim.capacity.sglang.settings import SGLANG_VERSION
    from kvsim.capacity.sglang.start_up import lines

    model, pool = options.build(), sglang_figures(options, device, flags)
    if as_json:
        table = {"model": model.name, "device": device.name, "engine": "sglang", **pool._asdict()}
        table["expected_error"] = expected_error("sglang").figures(pool.pools.tokens)
        table |= {"pools": pool.pools._asdict(), "log": list(lines(pool)), "notes": notes}
        typer.echo(json.dumps(table, indent=2))
    else:
        version = flags["engine_version"] or SGLANG_VERSION
        _print(model, device, options, pool, lines(pool), version)
        for note in notes:
            typer.echo(f"note: {note}")


def _print(
    model: "Model",
    device: "Device",
    options: "ModelOptions",
    pool: "SglangPool",
    log: tuple[str, ...],
    version: str,
) -> None:
    from rich.console import Console

    from kvsim.capacity.held_out import expected_error
    from kvsim.commands.memory.memory_tables import size_words
    from kvsim.commands.terminal_tables import numbers_table

    console = Console()
    gpus = f"{options.tensor_parallel_size} x {device.name}, figures of one"
    one = options.tensor_parallel_size == 1
    console.print(f"{model.name} on {device.name if one else gpus}")
    console.print()
    shown = numbers_table("", "bytes", "", title=f"Memory of one {device.name}")
    rows = [
        ("device", pool.total_bytes, 1),
        ("gone before the weights (estimate)", pool.set_up_bytes, -1),
        ("weights", pool.weights_bytes, -1),
        (f"headroom (mem_fraction_static {pool.mem_fraction_static:g})", pool.headroom_bytes, -1),
    ]
    for words, size, sign in rows:
        shown.add_row(words, f"{sign * size:,}", size_words(size))
    pools = pool.pools
    if pools.states is not None:
        count = f"{pools.states:,} states, not recorded"
        shown.add_row(f"states ({count})", f"{pools.state_bytes:,}", size_words(pools.state_bytes))
    if pools.window_tokens is not None:
        count = f"{pools.window_tokens:,} tokens, not recorded"
        size = pools.window_bytes
        shown.add_row(f"windows ({count})", f"{size:,}", size_words(size))
    size = pools.kv_bytes
    shown.add_row(f"KV ({pools.tokens:,} tokens)", f"{size:,}", size_words(size), style="bold")
    console.print(shown)
    console.print(f"SGLang {version} would say:", highlight=False)
    for line in log:
        console.print(line, highlight=False, soft_wrap=True)
    text = expected_error("sglang").text(pool.pools.tokens)
    console.print(text, highlight=False, soft_wrap=True)
