"""`kvsim calibrate --model M --device D --out FILE`: measure a model on this machine, and fit."""

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.commands.arguments import AsJson
from kvsim.commands.progress import bar
from kvsim.commands.torch_device import Attention, check_device
from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from kvsim.backend.calibrate.calibrate import Calibration


class StoreChoice(Enum):
    """Storage of the KV cache while steps are measured: paged blocks, or a contiguous buffer."""

    PAGED = "paged"
    CONTIGUOUS = "contiguous"


def measure(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Option(metavar="M", help="Model: a built-in name, or a config.json.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device to measure: cpu or cuda.")] = "cpu",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Output file of the calibration.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Data type of weights and cache.", show_default="the model's; float32"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure a smaller grid in fewer rounds.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Passes over all steps.", show_default="by device")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed of weights, order and held-out steps.")
    ] = 0,
    store: Annotated[
        StoreChoice,
        typer.Option(help="KV store: blocks of one pool, or one contiguous buffer per sequence."),
    ] = StoreChoice.PAGED,
    attention: Attention = None,
    served: Annotated[
        bool, typer.Option(help="Scale step times to the pace of a short served run.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Measure steps of a model on this machine and fit step times to them; or fit samples."""
    if context.invoked_subcommand is not None:
        return
    if model is None or out is None:
        raise InputError(
            "required option is missing",
            where="--model" if model is None else "--out",
            remedy="kvsim calibrate --model M --out FILE.json, or kvsim calibrate fit SAMPLES",
        )
    check_device(device)
    from kvsim.backend.calibrate.calibrate import calibrate
    from kvsim.backend.simulated.models import dtype_on, find_model
    from kvsim.backend.transformer.attentions import attention_kind
    from kvsim.step_time.calibrated.file import write_calibration

    found = find_model(model, dtype_on(device, dtype))
    log_path = out.with_suffix(".log.jsonl")
    with bar("measuring", "TimeRemaining") as advance:
        made = calibrate(
            found,
            device,
            log_path,
            quick=quick,
            rounds=rounds,
            seed=seed,
            store=store.value,
            served=served,
            attention=attention_kind(attention, device),
            progress=advance,
        )
    write_calibration(out, made.file)
    log_path.unlink()
    if as_json:
        typer.echo(json.dumps(made.file.dump(), indent=1))
    else:
        _say(made, out)


def _say(made: "Calibration", out: Path) -> None:
    from rich.console import Console

    from kvsim.commands.terminal_tables import errors_table

    console = Console()
    title = "Relative error on steps of a simulated trace, %"
    console.print(errors_table(title, made.held_out))
    measured = made.file.measured
    assert measured is not None
    level = measured.method["served"]
    if level:
        console.print(
            f"steps of a served run ({level['steps']:,}) took {1e6 * level['overhead_s']:.0f} us + "
            f"{level['scale']:.3f} times what repeated ones take",
            highlight=False,
        )
    for warning in measured.method["warnings"]:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    console.print(f"{made.file.fit.label}; written to {out}", highlight=False)
