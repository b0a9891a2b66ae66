"""`kvsim import SOURCE...`: logs and files of a server, as a scenario."""

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
            metavar="SOURCE",
            help="Files or folders: a command line, a log, a scrape of /metrics, benchmark "
            "results, traces, KV events. FORMAT=PATH names a format; a command line "
            "may stand here itself, in quotes.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="SCENARIO.toml",
            help="Output scenario. Requests go to NAME.requests.jsonl, measurements to NAME.run/.",
        ),
    ],
    device: Annotated[
        str | None, typer.Option(help="GPU, such as h100. Few sources name it.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model, if no source names it.")] = None,
    engine_version: Annotated[
        str | None, typer.Option(help="vLLM's version, such as 0.19.0, if no source names it.")
    ] = None,
    tensor_parallel_size: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs that the model is split over, if no source names them."),
    ] = None,
    users: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Clients of a closed loop, each of which asks again when it is answered; 0 keeps "
            "the recorded times. Default: a closed loop where the sources show one.",
        ),
    ] = None,
    prompts_repeat: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Requests after which the client sends the same prompts again; 0: never. kvsim "
            "import says after how many the prompt lengths repeat.",
        ),
    ] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Variable of a script or a manifest that has no value there, as TP=8.",
        ),
    ] = None,
    no_fit: Annotated[
        bool,
        typer.Option("--no-fit", help="Leave step times as they are; else a benchmark fits them."),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the scenario.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Turn a server's command line, logs, metrics and benchmarks into a scenario.

    The requests become a stream, and the measurements an observed run for `kvsim validate run`.
    kvsim lists what each source gave, what it assumed and what contradicts. It never reads prompts,
    answers, API keys or access tokens.
    """
    from kvsim.interchange.imported import ImportOptions, import_results, write_imported

    given = {
        "gpu": device,
        "model": model,
        "engine_version": engine_version,
        "tensor_parallel_size": tensor_parallel_size,
    }
    options = ImportOptions(given, seed, users, prompts_repeat, not no_fit)
    made = import_results(sources, options, out, _variables(variable or []))
    accounts = []
    for path, imported in made:
        written = write_imported(imported, path)
        if as_json:
            accounts.append(imported.as_dict() | {"written": [str(each) for each in written]})
            continue
        _print(imported)
        for each in written:
            typer.echo(f"written: {each}")
    if as_json:
        found = accounts[0] if len(accounts) == 1 else accounts
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
    elif len(made) > 1:
        typer.echo(f"{len(made)} results or servers, a scenario each")


def _variables(given: list[str]) -> dict[str, str]:
    from kvsim.plumbing.errors import InputError

    found = dict(each.partition("=")[::2] for each in given)
    for each in given:
        if "=" not in each:
            raise InputError("not NAME=VALUE", where="--variable", value=each)
    return found


def _print(imported: "Imported") -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    for read in imported.reads:
        description = read.description
        gave = [f"{name} = {value}" for name, value in description.settings.reported().items()]
        if description.model_config is not None:
            gave.append("the model's layers")
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
