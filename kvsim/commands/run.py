"""`kvsim run`: simulate a scenario under each of its allocators."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.commands.arguments import Changes, ScenarioName, Verbose

if TYPE_CHECKING:
    from kvsim.results.result import Result


def run(
    scenario: ScenarioName,
    set_: Changes = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write tables, summary and report.html into DIR."),
    ] = None,
    page: Annotated[
        bool,
        typer.Option(
            "--page/--no-page",
            help="Write report.html. --no-page skips it and the address trace, and is faster.",
        ),
    ] = True,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes that serve the cells of a fleet.")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="Where cells of a fleet run: processes (of this machine), dask or ray."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a Dask or Ray cluster (default: start one here).")
    ] = None,
    verbose: Verbose = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json only.")] = False,
) -> None:
    """Simulate a scenario: the same requests under every allocator that it lists."""
    from kvsim.commands.progress import Ticker, progress
    from kvsim.plumbing.errors import InputError
    from kvsim.plumbing.extras import need
    from kvsim.plumbing.writing import check_writable
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation

    if out is None and not page:
        raise InputError("nothing is written", where="--no-page", remedy="give --out DIR")
    with Ticker("reading the scenario and its requests"):
        simulation = Simulation(Scenario.load(scenario, set_ or []))
    spread = None
    if backend is not None or jobs is not None or address is not None:
        from kvsim.whatif.backends import BACKENDS
        from kvsim.whatif.fleet_cells import SpreadCells

        where = {"kind": backend or "processes", "jobs": jobs, "address": address}
        spread = SpreadCells(simulation, BACKENDS.parse(where, "--backend"))
    if out is not None:
        need("pyarrow", *(("jinja2", "pandas", "plotly") if page else ()), where="--out")
        check_writable(out)
        from kvsim.results import store
    with progress(simulation.labels) as moved:
        result = simulation.result(moved, addresses=out is not None and page, spread=spread)
    result = _with_measured(result, scenario, set_ or [])
    try:
        if out is not None:
            with Ticker("writing the tables and the report" if page else "writing the tables"):
                store.write(out, result, _page(result) if page else None)
    finally:  # what has been simulated is shown even if it cannot be kept
        if as_json:
            typer.echo(json.dumps(result.summary(), indent=2, ensure_ascii=False))
        else:
            given = shlex.join(
                [scenario, *(word for change in set_ or [] for word in ("--set", change))]
            )
            _print(result, given, verbose=verbose)
    if out is not None and not as_json:
        typer.echo(str(out / store.REPORT if page else out))
    _check_served(result)


def _with_measured(result: "Result", scenario: str, changed: list[str]) -> "Result":
    """The result, with the real server's measurements added that `kvsim import` wrote, if there are
    any.
    """
    from kvsim.observed.measured import measured_beside
    from kvsim.scenario import find_scenario

    measured = measured_beside(find_scenario(scenario))
    if measured is None:
        return result
    if changed:
        measured = replace(measured, source=f"{measured.source}, before {', '.join(changed)}")
    return replace(result, measured=measured)


def _page(result: "Result") -> str:
    from kvsim.report.page import make_page

    return make_page(result)


def _print(result: "Result", given: str, *, verbose: bool) -> None:
    from rich.console import Console

    if verbose:
        from kvsim.report.terminal import print_result

        print_result(result, Console())
    else:
        from kvsim.report.brief import print_brief

        print_brief(result, Console(), given)


def _check_served(result: "Result") -> None:
    """Raise InputError if no request of the scenario was served."""
    from kvsim.plumbing.errors import InputError

    if any(run.summary.requests.finished for run in result.runs):
        return
    notes = [note for run in result.runs for note in run.summary.notes or ()]
    reason = next((note.text for note in notes if note.about == "refused"), "none arrived")
    raise InputError(
        f"no request was served under any allocator: {reason.rstrip('.')}",
        where="workload",
        remedy="kvsim memory MODEL --device GPU shows what fits the pool",
    )
