"""`kvsim validate run DIR`: compare a recorded run of a real engine with the simulator."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson
from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from kvsim.validate.run.comparison import RunComparison
    from kvsim.validate.run.steps import StepErrors
    from kvsim.validate.run.tables import TextTable


def run(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder with meta.json, requests.csv, stream.jsonl and timeseries.csv.",
        ),
    ],
    step_time: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="A calibration (a .json file, or the name of a shipped one), auto, kernels, "
            "fitted or roofline.",
        ),
    ],
    fit: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Fit step times on the requests that ended in this first share of the run; "
            "latencies are then compared on the other requests.",
        ),
    ] = None,
    fit_form: Annotated[
        str | None,
        typer.Option(
            metavar="FORM",
            help="Numbers that --fit changes: server (over kernels: what servers have), "
            "constant, scale, constant+token or constant+chunk.",
            show_default="server over kernels, else the form with the least error on held-out "
            "requests of the share",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write report.html and comparison.json into DIR."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a recorded run under its own settings and say how far the simulation is off."""
    from kvsim.commands.answers import requests_line
    from kvsim.validate.run.comparison import compare_run

    if fit_form is not None and fit is None:
        raise InputError("says how to fit, but nothing is fitted", where="--fit-form",
                         value=fit_form, remedy="give --fit SHARE too")  # fmt: skip
    with requests_line("reading the run") as moved:
        comparison = compare_run(folder, step_time, fit, fit_form, moved)
    summary = comparison.summary()
    if out is not None:
        from kvsim.plumbing.writing import write_text
        from kvsim.validate.run.page import make_page

        shown = [comparison]
        if fit is not None:
            with requests_line("reading the run again") as moved:
                shown.insert(0, compare_run(folder, step_time, progress=moved))
        summaries = [one.summary() for one in shown]
        write_text(out / "comparison.json", json.dumps(summaries, indent=1) + "\n")
        write_text(out / "report.html", make_page(shown))
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
        return
    _print(comparison, summary, out)


def _print(comparison: "RunComparison", summary: dict[str, Any], out: Path | None) -> None:
    from rich.console import Console

    from kvsim.validate.run.tables import curve_table, fit_table, in_words

    console = Console(highlight=False)
    run, fit, engine = summary["run"], comparison.fit, comparison.run.meta.engine
    console.print(f"{run['name']}: {run['model']} on {run['gpu']}, {engine}")
    for assumption in run["assumed"]:
        console.print(f"assumed: {assumption}")
    if fit is not None:
        table = fit_table(fit)
        console.print(_rich(table))
        console.print(table.note)
        for warning in fit.warnings:
            console.print(f"[bold]warning:[/] {warning}")
        console.print(
            f"{in_words(fit)}, fitted on {fit.requests} requests; "
            f"latencies of the other {summary['reported_requests']}"
        )
    console.print(_latencies(summary))
    if comparison.curves is None:
        console.print("no log of the engine was kept: nothing is said of its queue and its pool")
    else:
        title = "The engine's log: mean absolute difference"
        console.print(_rich(curve_table(comparison.curves, title)))
    if comparison.steps is not None:
        _print_steps(summary, comparison.steps.times, console)
    outside = f"{100 * summary['steps_outside_domain']:.1f} %"
    console.print(
        f"{summary['steps']:,} steps, {outside} of them outside what was measured; "
        f"{summary['preemptions']} preemptions"
    )
    if out is not None:
        console.print(f"written to {out}")


def _print_steps(summary: dict[str, Any], times: "StepErrors | None", console: "Console") -> None:
    from kvsim.commands.terminal_tables import errors_table

    again, memory = summary["lock_step"], summary["memory"]
    console.print(f"{again['equal']:,} of {again['steps']:,} steps decided as recorded")
    if again["first_difference"]:
        console.print("step {step}: {figure} {recorded} recorded, {simulated} simulated".format(
            **again["first_difference"]))  # fmt: skip
    if times is not None:
        title = "Relative errors of step times, %"
        console.print(errors_table(title, times.by_kind, ("mape", "p50", "p90")))
    console.print(
        f"KV memory over time: {100 * memory['mean_absolute']:.1f} points apart on average, "
        f"{100 * memory['largest']:.1f} at most"
    )


def _latencies(summary: dict[str, Any]) -> "RichTable":
    from kvsim.commands.terminal_tables import numbers_table
    from kvsim.validate.run.tables import between

    heads = ("", "mean", "95 %", "p50", "p90", "p99", "recorded mean, s")
    table = numbers_table(*heads, title="Simulated against recorded")
    for name, error in summary["errors"].items():
        errors = error if isinstance(error, dict) else {"mean": error}
        cells = [
            f"{100 * errors[k]:+.1f} %" if k in errors else ""
            for k in ("mean", "p50", "p90", "p99")
        ]
        span = summary["mean_errors_95"].get(name)
        cells.insert(1, between(span))
        table.add_row(name.removesuffix("_s"), *cells, f"{summary['recorded'][name]['mean']:.4g}")
    return table


def _rich(table: "TextTable") -> "RichTable":
    from kvsim.commands.terminal_tables import numbers_table

    return numbers_table(*table.heads, title=table.title, rows=table.rows)
