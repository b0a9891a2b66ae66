"""`kvsim calibrate fit SAMPLES`: fit step times to measured steps."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.commands.arguments import AsJson
from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from kvsim.step_time.calibrated.fitted import Fit


def fit(
    samples: Annotated[
        Path,
        typer.Argument(
            metavar="SAMPLES",
            help="Measured steps, as .csv, or as .jsonl with chunks; or a server's .log: vLLM's "
            "with --enable-logging-iteration-details, or SGLang's.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Output file of the calibration.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model of the steps. The calibration refuses other models.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Device of the steps. The calibration refuses other devices.")
    ] = None,
    tensor_parallel_size: Annotated[
        int, typer.Option(min=1, help="GPUs that the model was sharded over.")
    ] = 1,
    form: Annotated[
        list[str] | None,
        typer.Option(help="A form of g(T) to consider. Repeatable.", show_default="all"),
    ] = None,
    source: Annotated[str, typer.Option(help="Source of the samples, noted in the file.")] = "",
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    resamples: Annotated[int, typer.Option(min=2, help="Bootstrap resamples.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of folds and resamples.")] = 0,
    step_time: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Step time to fit over: kernels or fitted. A factor of decode steps, one of "
            "steps with prompts and a constant are fitted. Prints a [step_time] table.",
            show_default="none: the steps alone",
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Engine of the steps: vllm or sglang, for --step-time.")
    ] = None,
    engine_version: Annotated[
        str | None, typer.Option(help="Version of the engine, for --step-time.")
    ] = None,
    share: Annotated[
        float,
        typer.Option(min=0, max=1, help="First share of SAMPLES that --step-time is fitted on."),
    ] = 0.5,
    parity: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Write a plot of held-out steps against measured ones."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit step times to SAMPLES; the form of g(T) is the one that predicts held-out steps best.

    Rows with source "held-out" are predicted and not fitted. Facts of the measurement in
    SAMPLES.facts.json, next to SAMPLES.jsonl, go into the file and name its device and model.
    """
    from rich.console import Console

    from kvsim.commands.terminal_tables import errors_table
    from kvsim.step_time.calibrated.file import CalibrationFile, SampleRecord, write_calibration
    from kvsim.step_time.calibrated.fit import errors_by_kind
    from kvsim.step_time.calibrated.fit import fit as fit_steps
    from kvsim.step_time.calibrated.identity import ModelIdentity, device_name
    from kvsim.step_time.calibrated.measured import (
        facts_beside,
        measured_device,
        measured_file,
        measured_model,
        parts_of,
    )
    from kvsim.validate.logged_samples import steps_of

    if step_time is not None:
        from kvsim.commands.calibrate.composed import fit_over

        if form or parity is not None:
            raise InputError("says how steps alone are fitted", remedy="leave --step-time out",
                             where="--form" if form else "--parity")  # fmt: skip
        fit_over(step_time, samples, model=model, device=device, share=share, out=out,
                 tensor_parallel_size=tensor_parallel_size, engine=(engine, engine_version),
                 as_json=as_json)  # fmt: skip
        return
    if engine is not None or engine_version is not None:
        raise InputError("an engine's kernels are not fitted over", where="--engine",
                         remedy="give --step-time kernels too")  # fmt: skip
    found = steps_of(samples)
    rows, held_out = parts_of(found.rows, str(samples))
    made = fit_steps(rows, forms=form, folds=folds, resamples=resamples, seed=seed)
    facts, apart = facts_beside(samples), errors_by_kind(made.formula, held_out)
    if facts is None:
        calibration = CalibrationFile.now(
            source=source,
            device=None if device is None else device_name(device),
            model=None if model is None else ModelIdentity.named(model),
            tensor_parallel_size=tensor_parallel_size,
            samples=SampleRecord.of(found),
            fit=made,
        )
    else:
        calibration, _ = measured_file(
            found,
            facts,
            made,
            held_out,
            source=source or "measured by kvsim's backend",
            device=measured_device(facts, device),
            model=measured_model(facts, model),
            tensor_parallel_size=tensor_parallel_size,
        )
    if out is not None:
        write_calibration(out, calibration)
    if parity is not None:
        from kvsim.plumbing.writing import write_text
        from kvsim.report.parity import parity_page
        from kvsim.step_time.calibrated.fit import held_out_errors

        errors = held_out_errors(calibration.fit, rows)
        write_text(parity, parity_page(f"Held-out steps of {samples.name}", rows, errors))
    if as_json:
        typer.echo(json.dumps(calibration.dump(), indent=1))
        return
    console = Console()
    console.print(_tried(calibration.fit))
    console.print(f"chosen: {calibration.fit.label}", highlight=False)
    title = f"Relative error of held-out steps ({folds} folds by shape), %"
    console.print(errors_table(title, calibration.fit.held_out))
    if apart:
        title = f"Relative error of {len(held_out):,} steps that were held apart, %"
        console.print(errors_table(title, apart))
    console.print(_terms(calibration.fit))
    if calibration.measured is not None:
        for warning in calibration.measured.method.get("warnings", ()):
            console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    for path in (out, parity):
        if path is not None:
            console.print(f"written to {path}", highlight=False)


def _tried(fit: "Fit") -> "Table":
    from kvsim.commands.terminal_tables import numbers_table

    title = "The best of each form: mean relative error of held-out steps, %"
    table = numbers_table("form of g(T)", *fit.held_out, title=title)
    for tried in fit.tried:
        table.add_row(tried.label, *(f"{100 * mape:.1f}" for mape in tried.held_out_mape.values()))
    return table


def _terms(fit: "Fit") -> "Table":
    from kvsim.commands.terminal_tables import numbers_table

    level = f"{100 * fit.intervals.level:.0f} %"
    title = f"Coefficients, ns (with the range of {level} of the resamples)"
    table = numbers_table("term", "ns", "low", "high", title=title)
    for point in fit.intervals.token_cost:
        g_ps = fit.formula.token_cost.ps(point.tokens)
        row = (f"{ps / 1e3:,.0f}" for ps in (g_ps, point.low_ps, point.high_ps))
        table.add_row(f"g({point.tokens})", *row)
    for name, (low_ps, high_ps) in fit.intervals.terms.items():
        value_ps = getattr(fit.formula.terms, name)
        row = (f"{ps / 1e3:,.3f}" for ps in (value_ps, low_ps, high_ps))
        table.add_row(name.removesuffix("_ps"), *row)
    return table
