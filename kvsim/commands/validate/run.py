"""`kvsim validate run DIR`: a recorded run of a real engine, held against the simulator."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def run(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The recording: meta.json, requests.csv, stream.jsonl, timeseries.csv.",
        ),
    ],
    step_time: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A calibration: a .json file, or the name of a shipped one."
        ),
    ],
    fit_overhead: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Fit one constant per step on the requests answered in this share of the time; "
            "latencies are then of the others alone.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write report.html and comparison.json here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Replay a recorded run under its own settings and say how far the simulation is off."""
    from kvsim.step_time.calibrated.file import find_calibration
    from kvsim.validate.run.comparison import compare_run

    calibration = find_calibration(step_time, "--step-time")
    comparison = compare_run(folder, calibration, fit_overhead)
    summary = comparison.summary()
    if out is not None:
        from kvsim.results.store import write_text
        from kvsim.validate.run.page import make_page

        shown = [comparison]
        if fit_overhead is not None:
            shown.insert(0, compare_run(folder, calibration))
        told = [one.summary() for one in shown]
        write_text(out / "comparison.json", json.dumps(told, indent=1) + "\n")
        write_text(out / "report.html", make_page(shown))
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
        return
    _print(summary, comparison.run.meta.engine, out)


def _print(summary: dict[str, Any], engine: str, out: Path | None) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    run, fitted = summary["run"], summary["overhead_fitted_on_requests"]
    console.print(f"{run['name']}: {run['model']} on {run['gpu']}, {engine}")
    if fitted:
        console.print(
            f"{1e6 * summary['overhead_s']:.0f} us a step, fitted on {fitted} requests; "
            f"latencies of the other {summary['reported_requests']}"
        )
    console.print(_latencies(summary))
    console.print(_curves(summary))
    if "lock_step" in summary:
        _print_steps(summary, console)
    outside = f"{100 * summary['steps_outside_domain']:.1f} %"
    console.print(
        f"{summary['steps']:,} steps, {outside} of them outside what was measured; "
        f"{summary['preemptions']} preemptions"
    )
    if out is not None:
        console.print(f"written to {out}")


def _print_steps(summary: dict[str, Any], console: "Console") -> None:
    from rich.table import Table

    again, memory = summary["lock_step"], summary["memory"]
    console.print(f"{again['equal']:,} of {again['steps']:,} steps decided as recorded")
    if again["first_difference"]:
        console.print("step {step}: {figure} {recorded} recorded, {simulated} simulated".format(
            **again["first_difference"]))  # fmt: skip
    times = summary["step_time_errors"]
    if times:
        table = Table(title="Relative errors of step times, %")
        for column in ("step", "n", "mean", "p50", "p90", "bias"):
            table.add_column(column, justify="left" if column == "step" else "right")
        for kind, errors in times["by_kind"].items():
            sizes = [f"{100 * errors[name]:.1f}" for name in ("mape", "p50", "p90")]
            table.add_row(kind, f"{errors['n']:,}", *sizes, f"{100 * errors['bias']:+.1f}")
        console.print(table)
    console.print(
        f"KV memory over time: {100 * memory['mean_absolute']:.1f} points apart on average, "
        f"{100 * memory['largest']:.1f} at most"
    )


def _latencies(summary: dict[str, Any]) -> "Table":
    from rich.table import Table

    table = Table(title="Simulated against recorded")
    for column in ("", "mean", "p50", "p90", "p99", "recorded mean, s"):
        table.add_column(column, justify="right" if column else "left")
    for name, error in summary["errors"].items():
        errors = error if isinstance(error, dict) else {"mean": error}
        cells = [
            f"{100 * errors[k]:+.1f} %" if k in errors else ""
            for k in ("mean", "p50", "p90", "p99")
        ]
        table.add_row(name.removesuffix("_s"), *cells, f"{summary['recorded'][name]['mean']:.4g}")
    return table


def _curves(summary: dict[str, Any]) -> "Table":
    from rich.table import Table

    table = Table(title="The engine's log: mean absolute difference")
    for column in (
        "phase",
        "ticks",
        "running",
        "waiting",
        "KV, points",
        "KV recorded",
        "simulated",
    ):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for name, phase in summary["curves"]["phases"].items():
        if phase["ticks"]:
            mean = phase["kv_cache_usage_mean"]
            table.add_row(
                name,
                str(phase["ticks"]),
                f"{phase['running_mae']:.1f}",
                f"{phase['waiting_mae']:.1f}",
                f"{100 * phase['kv_cache_usage_mae']:.1f}",
                f"{100 * mean['recorded']:.1f} %",
                f"{100 * mean['simulated']:.1f} %",
            )
    return table
