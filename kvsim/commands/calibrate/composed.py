"""`kvsim calibrate fit --step-time` and `pace`: correction factors for kernel-based step times."""

import json
from pathlib import Path
from typing import Any

import typer

from kvsim.plumbing.errors import InputError

COMPOSED = ("kernels", "fitted")
PACE_SHARE = 1 / 3  # of a run's time, whose requests are fitted on


def fit_over(
    kind: str,
    samples: Path,
    *,
    model: str | None,
    device: str | None,
    tensor_parallel_size: int,
    engine: tuple[str | None, str | None],
    share: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Fit a few correction numbers on top of the step time `kind` (kernels or fitted), and print
    the resulting [step_time] table and the errors.

    share: first share of the samples that is fitted; the errors are of the rest. engine: its name
    and its version.
    """
    from kvsim.commands.terminal_tables import errors_table
    from kvsim.commands.terminal_tables import out as stdout
    from kvsim.device import named_device
    from kvsim.model.find import find_model
    from kvsim.plumbing.writing import write_text
    from kvsim.step_time import STEP_TIMES
    from kvsim.step_time.kernels.expected import left_out_of, prior_words
    from kvsim.step_time.kernels.options import ComposedOptions
    from kvsim.step_time.options import Hardware
    from kvsim.validate.composed import corrected_steps, table_text
    from kvsim.validate.logged_samples import steps_of

    if kind not in COMPOSED:
        raise InputError("not a step time that is composed of kernels", where="--step-time",
                         value=kind, limit=" or ".join(COMPOSED))  # fmt: skip
    if model is None or device is None:
        raise InputError("kernels are those of a model on a device", where="--step-time",
                         value=kind, remedy="give --model and --device")  # fmt: skip
    names = {"engine": engine[0], "engine_version": engine[1]}
    given = {name: value for name, value in names.items() if value is not None}
    options = STEP_TIMES.parse({"kind": kind, **given}, "--step-time")
    assert isinstance(options, ComposedOptions)
    hardware = Hardware(
        find_model(model, "--model"), named_device(device, "--device"), tensor_parallel_size
    )
    kind_of_engine = engine[0] or "vllm"
    read = steps_of(samples)
    found = corrected_steps(options, hardware, read.samples(), share)
    table = found.options.model_dump()
    note = f"fitted on {found.fitted} of {len(read.rows)} steps of {read.name}"
    text = table_text(kind, table, note)
    if out is not None:
        write_text(out, text)
    if as_json:
        errors = {"before": _dumped(found.before), "held_out": _dumped(found.held_out)}
        errors["left_out"] = left_out_of(kind_of_engine)
        answer = {"step_time": {"kind": kind} | table, "fitted": found.fitted, **errors}
        typer.echo(json.dumps(answer, indent=1))
        return
    console = stdout()
    if words := prior_words(kind_of_engine):
        console.print(words, markup=False, highlight=False)
    console.print(errors_table("Relative error of the other steps, %: as tabulated", found.before))
    console.print(errors_table("With the fitted numbers", found.held_out))
    _print_table(text, out)


def pace_over(kind: str, run: Path, out: Path) -> None:
    """Fit a few correction numbers on top of the step time `kind`, and write the [step_time] table
    to `out`. They are fitted on the first third of a recorded run.
    """
    from kvsim.commands.answers import requests_line
    from kvsim.commands.terminal_tables import numbers_table
    from kvsim.commands.terminal_tables import out as stdout
    from kvsim.plumbing.writing import write_text
    from kvsim.validate.composed import numbers_of, table_text
    from kvsim.validate.run.comparison import compare_run
    from kvsim.validate.run.errors import relative
    from kvsim.validate.served import hardware_of

    with requests_line("reading the run") as moved:
        after = compare_run(run, kind, PACE_SHARE, progress=moved)
        before = compare_run(run, kind, progress=moved)
    assert after.fit is not None
    hardware = hardware_of(after.run.meta, "meta.json.")
    names = {"engine": hardware.engine, "engine_version": hardware.engine_version}
    note = f"fitted on the first {after.fit.requests} requests of {after.run.name}"
    text = table_text(kind, {**names, **numbers_of(after.fit.correction)}, note)
    write_text(out, text)
    title = f"Mean latencies of the other {len(after.reported)} requests: simulated / recorded - 1"
    console = stdout()
    table = numbers_table("", "ttft", "tpot", "e2e", title=title)
    recorded = after.recorded
    for label, one in (("as tabulated", before), ("with the fitted numbers", after)):
        errors: Any = relative(one.simulated, recorded if one is after else one.recorded)
        table.add_row(label, *(f"{100 * errors[f'{name}_s']['mean']:+.1f} %"
                               for name in ("ttft", "tpot", "e2e")))  # fmt: skip
    console.print(table)
    _print_table(text, out)


def _dumped(errors: Any) -> dict[str, Any]:
    return {kind: each.model_dump() for kind, each in errors.items()}


def _print_table(text: str, out: Path | None) -> None:
    typer.echo(text, nl=False)
    if out is not None:
        typer.echo(f"written to {out}")
