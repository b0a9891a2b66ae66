"""`kvsim calibrate tier --model M --out FILE.toml`: measure how fast this machine copies blocks."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.commands.arguments import AsJson
from kvsim.commands.torch_device import check_device
from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from kvsim.backend.calibrate.tier import LinkFit
    from kvsim.backend.measure.tier_copies import Way


LARGE_ERROR = 0.25  # of a time; a larger one is told in a note


def tier(
    model: Annotated[
        str, typer.Option(metavar="M", help="Model: a built-in name, or a config.json.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE.toml", help="Output file: the [[tier]] tables.")
    ],
    device: Annotated[str, typer.Option(help="Device to measure: cpu or cuda.")] = "cpu",
    kv_offloading_size: Annotated[
        float, typer.Option(min=0.001, help="Size of host memory to write down, GiB.")
    ] = 8.0,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Measure files in this folder too, for a tier of kind file-system.",
        ),
    ] = None,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens of a block.")] = 16,
    most_mib: Annotated[int, typer.Option(min=1, help="Largest copy to measure, MiB.")] = 512,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of contents and blocks.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure copies of blocks to host memory and files, and write [[tier]] tables.

    Copies of one block up to --most-mib go to a pool in host memory (pinned on a GPU) and back.
    A latency and two bandwidths are fitted; the table shows their errors on sizes that were left
    out. Files are read and written by one thread, past the page cache where the folder allows it.
    """
    check_device(device)
    import torch

    from kvsim.backend.calibrate.tier import fit_link
    from kvsim.backend.measure.host import device_facts
    from kvsim.backend.measure.tier_copies import file_copies, host_copies
    from kvsim.backend.simulated.models import find_model
    from kvsim.backend.simulated.shape import llama_shape
    from kvsim.plumbing.extras import need
    from kvsim.plumbing.writing import check_file_writable, write_text

    need("scipy", where="kvsim calibrate tier")
    check_file_writable(out)
    if folder is not None and not folder.is_dir():
        raise InputError("no such folder", where="--folder", value=str(folder),
                         remedy="make it first")  # fmt: skip
    shape = llama_shape(find_model(model, None).build())
    if device == "cpu":
        torch.set_num_threads(1)
    copies = host_copies(shape, device, block_size=block_size, most_bytes=most_mib << 20, seed=seed)
    fits, notes = [fit_link(copies, one_latency=True)], list[str]()
    if folder is not None:
        files, direct = file_copies(shape, folder, block_size=block_size, seed=seed)
        fits.append(fit_link(files, one_latency=False))
        if not direct:
            notes.append(f"{folder} has no direct reads: files were read from the page cache")
    for fit in fits:
        notes += [
            f"copies ({way}) do not follow one latency and one bandwidth here: "
            f"errors up to {errors.max:.0%}"
            for way, errors in fit.errors.items()
            if errors.max > LARGE_ERROR
        ]
    lines = [
        f"# measured by kvsim calibrate tier on {device_facts(device)['name']}: {model}, blocks of",
        f"# {block_size} tokens ({block_size * shape.kv_bytes_per_token:,} bytes)",
        *(f"# {note}" for note in notes),
        *_host_table(fits[0], kv_offloading_size),
        *(_file_table(fits[1]) if len(fits) > 1 else ()),
    ]
    write_text(out, "\n".join(lines) + "\n")
    if as_json:
        ways = {way: _figures(fit, way) for fit in fits for way in fit.bytes_per_s}
        typer.echo(json.dumps({"tier": ways, "notes": notes}, indent=1))
        return
    _say(fits, notes, out)


def _host_table(fit: "LinkFit", size_gib: float) -> list[str]:
    return [
        "[[tier]]",
        'kind = "vllm-offloading"',
        f"kv_offloading_size = {size_gib:g}",
        f"store_gb_per_s = {_gb_per_s(fit, 'store')}",
        f"load_gb_per_s = {_gb_per_s(fit, 'load')}",
        f"latency_us = {_latency_us(fit, 'store')}",
    ]


def _file_table(fit: "LinkFit") -> list[str]:
    return [
        "",
        "[[tier]]",
        'kind = "file-system"',
        *(f"{way}_gb_per_s = {_gb_per_s(fit, way)}" for way in fit.bytes_per_s),
        *(f"{way}_latency_us = {_latency_us(fit, way)}" for way in fit.bytes_per_s),
    ]


def _gb_per_s(fit: "LinkFit", way: "Way") -> str:
    return f"{fit.bytes_per_s[way] / 1e9:.4g}"


def _latency_us(fit: "LinkFit", way: "Way") -> str:
    return f"{fit.latency_s[way] * 1e6:.4g}"


def _figures(fit: "LinkFit", way: "Way") -> dict[str, object]:
    return {
        "gb_per_s": fit.bytes_per_s[way] / 1e9,
        "latency_us": fit.latency_s[way] * 1e6,
        "held_out": fit.errors[way].model_dump(),
    }


def _say(fits: "list[LinkFit]", notes: list[str], out: Path) -> None:
    from kvsim.commands.terminal_tables import numbers_table
    from kvsim.commands.terminal_tables import out as stdout

    rows = [
        (
            way,
            _gb_per_s(fit, way),
            _latency_us(fit, way),
            f"{100 * fit.errors[way].p50:.1f}",
            f"{100 * fit.errors[way].max:.1f}",
        )
        for fit in fits
        for way in fit.bytes_per_s
    ]
    title = "Copies of blocks, and relative errors of sizes that were left out, %"
    columns = ("copy", "GB/s", "latency, us", "median error", "largest")
    console = stdout()
    console.print(numbers_table(*columns, title=title, rows=rows))
    for note in notes:
        console.print(f"[yellow]note:[/] {note}", highlight=False)
    console.print(f"written to {out}", highlight=False)
