"""`kvsim convert SRC DST --to FORMAT`: a trace in another format."""

from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A file, or a name that `kvsim traces list` shows.")
    ],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="Output file.")],
    to: Annotated[
        str, typer.Option("--to", help="Output format; `kvsim traces formats` lists them.")
    ],
    format: Annotated[
        str | None, typer.Option("--from", help="Format of SRC.", show_default="found by content")
    ] = None,
    hash_block_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens per hash id in SRC.")
    ] = None,
    to_hash_block_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens per hash id in DST.")
    ] = None,
    start_s: Annotated[float | None, typer.Option(help="Skip rows before this time.")] = None,
    end_s: Annotated[float | None, typer.Option(help="Skip rows from this time on.")] = None,
    limit: Annotated[int | None, typer.Option(help="Keep only this many rows.")] = None,
    rate_scale: Annotated[
        float | None, typer.Option(help="Multiply the arrival rate by this.")
    ] = None,
    rate_per_s: Annotated[float | None, typer.Option(help="Scale arrivals to this rate.")] = None,
    clip_to: Annotated[
        int | None, typer.Option(help="Cut prompt plus output to this many tokens.")
    ] = None,
    drop_over: Annotated[
        int | None, typer.Option(help="Skip requests with more tokens than this.")
    ] = None,
    drop_failed: Annotated[
        bool, typer.Option("--drop-failed", help="Skip rows without prompt or output.")
    ] = False,
    sort: Annotated[bool, typer.Option("--sort", help="Sort rows by arrival time.")] = False,
) -> None:
    """Convert a trace, or a part of it, to another format."""
    from rich.console import Console

    from kvsim.plumbing.writing import check_file_writable, write_lines
    from kvsim.workload import convert as conversion
    from kvsim.workload.catalogue import find
    from kvsim.workload.trace import TraceReplay

    options = {
        "path": find(source),
        "format": format,
        "hash_block_tokens": hash_block_tokens,
        "start_s": start_s,
        "end_s": end_s,
        "limit": limit,
        "rate_scale": rate_scale,
        "rate_per_s": rate_per_s,
        "clip_to": clip_to,
        "drop_over": drop_over,
        "drop_failed": drop_failed,
        "sort": sort,
    }
    check_file_writable(destination)
    replay = TraceReplay.parse(options, "convert")
    trace = replay.cut(replay.read(replay.file(Path())), None)
    lines, lost = conversion.convert(trace, to, to_hash_block_tokens)
    write_lines(destination, lines)
    console = Console(stderr=True, highlight=False)
    for note in trace.notes:
        console.print(note, soft_wrap=True)
    for what in lost:
        console.print(f"lost: {what}", soft_wrap=True)
    rows = f"{len(trace.rows):,} requests"
    console.print(f"{destination}: {rows}, {trace.format} to {to}", soft_wrap=True)
