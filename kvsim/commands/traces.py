"""`kvsim traces`: list public traces, download one, and summarise a trace."""

import json
from typing import Annotated, Any

import typer

from kvsim.commands.arguments import AsJson
from kvsim.commands.example import example
from kvsim.commands.terminal_tables import out, plain_table
from kvsim.plumbing.errors import InputError

app = typer.Typer(no_args_is_help=True, help="List, fetch and describe public request traces.")


@app.command("list", epilog=example("kvsim traces list"))
def list_traces(as_json: AsJson = False) -> None:
    """The catalogue: name, rows, format, licence, source, and whether the file is there."""
    from kvsim.workload.catalogue import data_dir, entries

    if as_json:
        rows = [
            {
                **entry.model_dump(exclude_none=True),
                "file": entry.file_name,
                "present": entry.path.exists(),
            }
            for entry in entries().values()
        ]
        typer.echo(json.dumps({"folder": str(data_dir()), "traces": rows}, indent=2))
        return
    table = plain_table("name", ">rows", "format", "licence", "source (github.com)", "here")
    for entry in entries().values():
        here = "yes" if entry.path.exists() else "no"
        source = entry.source.removeprefix("github.com/")
        table.add_row(entry.name, f"{entry.rows:,}", entry.format, entry.licence, source, here)
    out().print(table)
    out().print(f"files are in {data_dir()} (KVSIM_DATA_DIR)", soft_wrap=True)


@app.command(epilog=example("kvsim traces formats"))
def formats(as_json: AsJson = False) -> None:
    """List the trace formats that kvsim reads and writes."""
    from kvsim.workload.traces import TRACE_FORMATS

    classes = {name: TRACE_FORMATS.get(name) for name in TRACE_FORMATS}
    if as_json:
        answer = [
            {"name": name, "example": cls.example, "carries": sorted(cls.carries)}
            for name, cls in classes.items()
        ]
        typer.echo(json.dumps({"formats": answer}, indent=2))
        return
    table = plain_table("format", "beside times and lengths", "columns or keys")
    for name, cls in classes.items():
        table.add_row(name, ", ".join(sorted(cls.carries)) or "-", cls.example.replace("[", r"\["))
    out().print(table)


@app.command(epilog=example("kvsim traces fetch azure-conv-2023"))
def fetch(
    name: Annotated[str, typer.Argument(help="A name that `kvsim traces list` shows.")],
) -> None:
    """Download a trace if it is missing, check its sha256, and print its path."""
    from kvsim.workload.catalogue import locate

    typer.echo(str(locate(name)))


@app.command(epilog=example("kvsim traces describe azure-conv-2023"))
def describe(
    file: Annotated[str, typer.Argument(metavar="FILE_OR_NAME", help="A file or a trace's name.")],
    format: Annotated[
        str | None,
        typer.Option("--format", help="Format of the file.", show_default="found by content"),
    ] = None,
    hash_block_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens per hash id.", show_default="the format's")
    ] = None,
    lru_blocks: Annotated[
        list[int] | None,
        typer.Option(min=0, help="A cache size in hash blocks. Repeatable."),
    ] = None,
    drop_failed: Annotated[
        bool, typer.Option("--drop-failed", help="Skip rows without prompt or output.")
    ] = False,
    sort: Annotated[bool, typer.Option("--sort", help="Sort rows by arrival time.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rows, rate, bursts, lengths and prefix reuse of a trace."""
    from kvsim.workload.catalogue import find
    from kvsim.workload.describe import LRU_BLOCKS
    from kvsim.workload.describe import describe as describe_trace
    from kvsim.workload.traces.reader import read_trace

    trace = read_trace(
        find(file),
        format=format,
        hash_block_tokens=hash_block_tokens,
        drop_failed=drop_failed,
        sort=sort,
    )
    if lru_blocks and trace.hash_block_tokens is None:
        raise InputError(f"the {trace.format} format has no hash ids", where="--lru-blocks")
    answer = describe_trace(trace, lru_blocks or LRU_BLOCKS)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        _print_description(answer)


def _print_description(answer: dict[str, Any]) -> None:
    console = out()
    console.print(f"{answer['file']}: {answer['rows']:,} requests, format {answer['format']}")
    arrivals = answer["arrivals"]
    if arrivals is not None:
        rate, cv = arrivals["rate_per_s"], arrivals["gap_cv"]
        console.print(
            f"arrivals: {_number(rate, 2)} /s over {arrivals['duration_s']:,.1f} s, "
            f"peak {arrivals['peak_10s_per_s']:.1f} /s in 10 s, gap CV {_number(cv, 2)}"
        )
    if answer["sessions"] is not None:
        console.print(f"sessions: {answer['sessions']:,}")
    table = plain_table("tokens", ">mean", ">p50", ">p90", ">p99", ">max")
    for key in ("prompt_tokens", "output_tokens"):
        values = [f"{int(value + 0.5):,}" for value in answer[key].values()]
        table.add_row(key.removesuffix("_tokens"), *values)
    console.print(table)
    reuse = answer["reuse"]
    if reuse is not None:
        console.print(
            f"prefix reuse in blocks of {reuse['hash_block_tokens']} tokens: "
            f"{reuse['unique_blocks']:,} unique of {reuse['block_references']:,} referenced; "
            f"ideal hit ratio {reuse['ideal_token_hit_ratio']:.4f} of tokens, "
            f"{reuse['ideal_block_hit_ratio']:.4f} of blocks"
        )
        table = plain_table("LRU cache, blocks", ">token hit ratio")
        for blocks, ratio in reuse["lru_token_hit_ratio"].items():
            table.add_row(f"{int(blocks):,}", f"{ratio:.4f}")
        console.print(table)
    for note in answer["notes"]:
        console.print(note)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
