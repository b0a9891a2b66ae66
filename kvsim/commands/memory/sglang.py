"""`kvsim memory --mem-fraction-static`: size the pools of an SGLang server."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kvsim.commands.memory.flags import PANELS, SGLANG
from kvsim.commands.memory.memory_tables import MemoryPart, memory_table

if TYPE_CHECKING:
    from kvsim.capacity.sglang.sizing import SglangPool
    from kvsim.device import Device
    from kvsim.model import Model, ModelOptions

SWITCH = "mem_fraction_static"
FLAGS = (*PANELS[SGLANG], "weights_gib", "engine_version")


def sglang_figures(
    options: "ModelOptions", device: "Device", flags: Mapping[str, Any]
) -> "SglangPool":
    """Size the pools that these SGLang flags give."""
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
    out: Path | None,
) -> None:
    """Size the pools, and print them as text or as JSON. out: a folder for the page too."""
    from kvsim.capacity.held_out import expected_error
    from kvsim.capacity.sglang.settings import SGLANG_VERSION
    from kvsim.capacity.sglang.start_up import lines

    model, pool = options.build(), sglang_figures(options, device, flags)
    notes = [*notes, *_fewer_requests(flags["max_running_requests"], pool)]
    table = {"model": model.name, "device": device.name, "engine": "sglang", **pool._asdict()}
    table["expected_error"] = expected_error("sglang").figures(pool.pools.tokens)
    table |= {"pools": pool.pools._asdict(), "log": list(lines(pool)), "notes": notes}
    if out is not None:
        from kvsim.commands.memory.page import write_page

        write_page(out, f"SGLang, {model.name}", device.name, sglang_parts(pool), table)
    if as_json:
        typer.echo(json.dumps(table, indent=2))
    else:
        version = flags["engine_version"] or SGLANG_VERSION
        _print(model, device, options, pool, lines(pool), version)
        for note in notes:
            typer.echo(f"note: {note}")


def _fewer_requests(asked: int | None, pool: "SglangPool") -> list[str]:
    """A note that fewer requests run than --max-running-requests asks for, and why."""
    found = pool.pools.max_running_requests
    if asked is None or asked <= found:
        return []
    what = "tokens" if pool.pools.states is None else "states"
    return [f"--max-running-requests {asked}: the pool of {what} allows {found} at a time."]


def sglang_parts(pool: "SglangPool") -> list[MemoryPart]:
    """The uses of a GPU's memory; the pools come last, and of the pools the full-attention KV."""
    pools, headroom = pool.pools, f"headroom (mem_fraction_static {pool.mem_fraction_static:g})"
    parts = [
        MemoryPart("gone before the weights (estimate)", pool.set_up_bytes),
        MemoryPart("weights", pool.weights_bytes),
        MemoryPart(headroom, pool.headroom_bytes),
    ]
    if pools.states is not None:
        words = f"states ({pools.states:,} states, not recorded)"
        parts.append(MemoryPart(words, pools.state_bytes, True))
    if pools.window_tokens is not None:
        words = f"windows ({pools.window_tokens:,} tokens, not recorded)"
        parts.append(MemoryPart(words, pools.window_bytes, True))
    return [*parts, MemoryPart(f"KV ({pools.tokens:,} tokens)", pools.kv_bytes, True)]


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

    console = Console()
    gpus = f"{options.tensor_parallel_size} x {device.name}, figures of one"
    one = options.tensor_parallel_size == 1
    console.print(f"{model.name} on {device.name if one else gpus}")
    console.print()
    title = f"Memory of one {device.name}"
    console.print(memory_table(title, pool.total_bytes, sglang_parts(pool)))
    console.print(f"SGLang {version} would say:", highlight=False)
    for line in log:
        console.print(line, highlight=False, soft_wrap=True)
    text = expected_error("sglang").text(pool.pools.tokens)
    console.print(text, highlight=False, soft_wrap=True)
