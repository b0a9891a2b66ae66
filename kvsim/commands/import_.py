"""`kvsim import SOURCE...`: what a server leaves behind, as a scenario."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.commands.arguments import AsJson

if TYPE_CHECKING:
    from kvsim.interchange.imported import Imported


def import_(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Files or folders, any mixture: a command line, a log, a scrape of /metrics, "
            "results of benchmarks, traces, KV events. FORMAT=PATH names a format; a command line "
            "may stand here itself, in quotes.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="SCENARIO.toml",
            help="Requests go to NAME.requests.jsonl beside it, what was measured to NAME.run/.",
        ),
    ],
    device: Annotated[
        str | None, typer.Option(help="The GPU, which few sources name, such as h100.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model, if no source names it.")] = None,
    engine_version: Annotated[
        str | None, typer.Option(help="vLLM's, if no source tells it, such as 0.19.0.")
    ] = None,
    tensor_parallel_size: Annotated[
        int | None, typer.Option(min=1, help="GPUs the model is split over, likewise.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The scenario's seed.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Describe a real server: its settings as a scenario, its requests as a stream, and what was
    measured as an observed run for `kvsim validate run`.

    What each source gave, what was assumed and what contradicts is listed. Prompts, answers, keys
    and tokens of access are never read.
    """
    from kvsim.interchange.imported import import_sources, write_imported

    given = {
        "gpu": device,
        "model": model,
        "engine_version": engine_version,
        "tensor_parallel_size": tensor_parallel_size,
    }
    imported = import_sources(sources, given, out, seed)
    written = write_imported(imported, out)
    if as_json:
        account = imported.as_dict() | {"written": [str(path) for path in written]}
        typer.echo(json.dumps(account, indent=1, ensure_ascii=False))
        return
    _print(imported)
    for path in written:
        typer.echo(f"written: {path}")


def _print(imported: "Imported") -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    for read in imported.reads:
        description = read.description
        gave = [f"{name} = {value}" for name, value in description.settings.reported().items()]
        if description.requests is not None:
            gave.append(f"{len(description.requests.rows):,} requests")
        if description.gauges is not None:
            gave.append(f"{len(description.gauges.samples):,} samples of gauges")
        if description.load is not None and description.requests is None:
            gave.append(f"the means of {description.load.num_requests:,} requests")
        console.print(f"[bold]{escape(read.name)}[/bold] ({read.format})", soft_wrap=True)
        console.print(f"  gave {escape('; '.join(gave) or 'nothing')}", soft_wrap=True)
        for note in description.notes:
            console.print(f"  {escape(note)}", soft_wrap=True)
    for title, lines in (
        ("contradicts", [str(each) for each in imported.contradictions]),
        ("assumed", imported.assumed),
        ("note", imported.notes),
    ):
        for line in lines:
            console.print(f"{title}: {escape(line)}", soft_wrap=True)
