"""`kvsim export`: write a simulated run in another tool's format."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import Changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvsim.interchange.exports.export import Export, Exported
    from kvsim.interchange.served import ServedScenario

TORCH = "torch-snapshot"


def export(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="A TOML file, the name of a recipe, or a folder that kvsim run --out wrote.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Output file; a folder for --to aiperf.")
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="Output format: torch-snapshot (for torch's memory_viz), vllm-metrics, "
            "openmetrics, vllm-bench, aiperf, perfetto or vllm-serve.",
        ),
    ] = TORCH,
    allocator: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Allocator to export (default: the first).")
    ] = None,
    at_s: Annotated[
        float | None,
        typer.Option(
            "--at",
            min=0,
            metavar="SECONDS",
            help="Time of the torch-snapshot (default: when the pool is fullest).",
        ),
    ] = None,
    every_s: Annotated[
        float | None,
        typer.Option(
            "--every", metavar="SECONDS", help="Sampling interval of openmetrics and aiperf."
        ),
    ] = None,
    start_unix_s: Annotated[
        float | None,
        typer.Option(
            "--start-unix",
            metavar="SECONDS",
            help="Start of the run as a Unix time, for openmetrics and aiperf.",
        ),
    ] = None,
    set_: Changes = None,
) -> None:
    """Write a simulated run in another tool's format."""
    given = {"every_s": every_s, "start_unix_s": start_unix_s}
    options = {key: value for key, value in given.items() if value is not None}
    if to == TORCH:
        _torch(scenario, out, allocator, at_s, options, set_ or [])
        return
    from kvsim.interchange.exports import EXPORTS
    from kvsim.interchange.exports.export import ServerExport
    from kvsim.plumbing.errors import InputError
    from kvsim.plumbing.writing import check_file_writable, check_writable

    if at_s is not None:
        raise InputError(f"the {to} format is of the whole run", where="--at", value=at_s)
    form = EXPORTS.get(to, "--to", beside=(TORCH,)).parse(options, f"--to {to}")
    (check_writable if form.folder else check_file_writable)(out)
    if isinstance(form, ServerExport):
        server = _server(scenario, allocator, set_ or [])
        _write(form, form.server_files(server), out)
        typer.echo(f"{out}: {server.label} as {to}")
        for line in form.told(server):
            typer.echo(f"note: {line}")
        return
    exported = _exported(form, scenario, allocator, set_ or [])
    _write(form, form.files(exported), out)
    typer.echo(f"{out}: {exported.what} as {to}")


def _torch(
    scenario: str,
    out: Path,
    allocator: str | None,
    at_s: float | None,
    options: dict[str, Any],
    overrides: list[str],
) -> None:
    from kvsim.interchange.torch_snapshot.export import write_torch_snapshot
    from kvsim.plumbing.errors import InputError
    from kvsim.plumbing.writing import check_file_writable
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation

    if options:
        raise InputError(
            "unknown key", where=f"--to {TORCH}.{next(iter(options))}", remedy="known keys: --at"
        )
    check_file_writable(out)
    simulation = Simulation(Scenario.load(scenario, overrides))
    label = allocator or simulation.labels[0]
    at_s = write_torch_snapshot(simulation, label, out, at_s)
    typer.echo(f"{out}: {label} at {at_s:.3f} s")


def _server(scenario: str, allocator: str | None, overrides: list[str]) -> "ServedScenario":
    """The server configuration of one allocator (or of one replica of its fleet), without
    simulating.
    """
    from kvsim.interchange.served import server_of
    from kvsim.scenario import Scenario

    _check_unchanged(scenario, overrides)
    loaded = Scenario.load(scenario, overrides)
    return server_of(loaded, allocator)


def _check_unchanged(scenario: str, overrides: list[str]) -> None:
    """Raise InputError if --set is given for a stored result, which cannot be changed."""
    from kvsim.plumbing.errors import InputError

    if Path(scenario).is_dir() and overrides:
        raise InputError("a result has been simulated already", where="--set")


def _exported(
    form: "Export", scenario: str, allocator: str | None, overrides: list[str]
) -> "Exported":
    """The run of one allocator: simulated now, or read from a result's folder."""
    from kvsim.interchange.exports.export import Exported
    from kvsim.plumbing.errors import InputError
    from kvsim.results import store
    from kvsim.scenario import Scenario
    from kvsim.scenario.build.sized import place_of
    from kvsim.simulation import Simulation

    _check_unchanged(scenario, overrides)
    if Path(scenario).is_dir():
        result = store.read(Path(scenario))
    else:
        simulation = Simulation(Scenario.load(scenario, overrides))
        if simulation.fleet is None:
            run = simulation.run(*simulation.chosen(allocator))
            return Exported(simulation.resolved(), run)
        result = simulation.result()
    labels = [run.label for run in result.runs]
    fleets = {fleet.label: fleet.replicas for fleet in result.fleets}
    label = allocator or next(iter(fleets), labels[0])
    if label not in fleets or label in labels:
        return Exported(result.scenario, result.runs[place_of(label, labels)])
    first, *others = (run for run in result.runs if run.label.startswith(f"{label} #"))
    if not form.fleets:
        raise InputError(
            "the format is of one replica",
            where="--allocator",
            value=label,
            remedy=f"name one: {first.label}, {others[0].label}, ...",
        )
    return Exported(result.scenario, first, tuple(others))


def _write(form: "Export", written: "Iterator[tuple[str, Iterator[str]]]", out: Path) -> None:
    from kvsim.plumbing.writing import lines_writer, replace_files

    files = {name: lines_writer(lines) for name, lines in written}
    if form.folder:
        replace_files(out, files)
    else:
        (save,) = files.values()
        replace_files(out.parent, {out.name: save})
