"""`kvsim snapshot`: read torch's memory snapshot, and say whether fragmentation caused an OOM
error.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson

if TYPE_CHECKING:
    from kvsim.interchange.torch_snapshot.ledger import SnapshotLedger
    from kvsim.interchange.torch_snapshot.out_of_memory import OutOfMemory

PARTS = {
    "requested": "asked for by live tensors",
    "rounding": "given beyond what was asked for",
    "awaiting_free": "freed, another stream may still use it",
    "split": "free, in segments that hold something",
    "whole": "free segments, could go back to the device",
}
REMEDY = (
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True helps where pieces hold free pages of 20 MiB."
)


def snapshot(
    file: Annotated[
        Path,
        typer.Argument(
            help="A file that torch.cuda.memory._dump_snapshot() wrote, "
            "torch.cuda.memory_stats() as JSON, or a log with an out-of-memory error."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Read a torch memory snapshot, or an out-of-memory error, and say what is fragmentation.

    A request fails for fragmentation where the bytes that the device lacked lie unused in torch's
    segments, in pieces that are too small. No code in the file is run.
    """
    from kvsim.interchange.torch_snapshot.torch_memory import read_torch_memory

    found = read_torch_memory(file)
    if as_json:
        derived = ("allocated", "reserved", "external")
        devices = [
            {**ledger._asdict(), **{name: getattr(ledger, name) for name in derived}}
            for ledger in found.ledgers
        ]
        failures = [
            {
                **each._asdict(),
                "missing": each.missing,
                "fragmented": each.fragmented,
                "verdict": verdict(each),
            }
            for each in found.failures
        ]
        typer.echo(json.dumps({"devices": devices, "out_of_memory": failures}, indent=2))
        return
    from rich.console import Console

    if not found.ledgers and not found.failures:
        Console().print("The snapshot holds no segments: nothing was reserved.")
    for ledger in found.ledgers:
        Console().print(_table(ledger))
        if not any(each.device == ledger.device for each in found.failures):
            typer.echo(_without_failure(ledger))
    for each in found.failures:
        typer.echo(f"Out of memory on device {each.device}: {verdict(each)}")


def _table(ledger: "SnapshotLedger") -> Any:
    from kvsim.commands.terminal_tables import plain_table

    title = f"Device {ledger.device}: {ledger.segments:,} segments"
    table = plain_table("class", ">bytes", ">share", "", title=title)
    for name, words in PARTS.items():
        value = getattr(ledger, name)
        table.add_row(name, f"{value:,}", _share(value, ledger.reserved), words)
    table.add_section()
    table.add_row("reserved", f"{ledger.reserved:,}", "100.0%", "given by the device")
    if ledger.largest_free is not None:
        table.add_row("largest free", f"{ledger.largest_free:,}", "", "the largest free block")
    table.add_row(
        "peak", f"{ledger.peak_requested:,}", "", "most asked for, as far as the trace goes back"
    )
    return table


def _without_failure(ledger: "SnapshotLedger") -> str:
    from kvsim.report.numbers import size

    share = _share(ledger.split, ledger.reserved)
    split = f"{share} of what torch reserved lies free in segments in use: {size(ledger.split)}"
    if ledger.largest_free is None:
        return f"{split}. memory_stats() does not say in which pieces."
    pieces = size(ledger.largest_free)
    return f"{split}. A request above {pieces}, the largest free block, needs the device's memory."


def verdict(failure: "OutOfMemory") -> str:
    """Whether fragmentation made an allocation fail, in sentences."""
    from kvsim.report.numbers import size

    asked, free = size(failure.asked), size(failure.device_free)
    request = f"{asked} were asked for, and the device had {free} free."
    if not failure.missing:
        return f"{request} That would do: another process, the driver or a limit was in the way."
    unused = f"torch had {size(failure.unused)} unused in its segments"
    if failure.largest_free is not None:
        unused += f", in pieces of at most {size(failure.largest_free)}"
    if failure.fragmented == failure.missing:
        return f"{request} This is fragmentation: {unused}. {REMEDY}"
    share = _share(failure.fragmented, failure.missing)
    return f"{request} {share} of what was missing is fragmentation: {unused}."


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"
