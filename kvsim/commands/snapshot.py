"""`kvsim snapshot`: what the bytes of a torch memory snapshot are doing."""

import json
from pathlib import Path
from typing import Annotated

import typer

from kvsim.commands.arguments import AsJson


def snapshot(
    file: Annotated[
        Path, typer.Argument(help="A file that torch.cuda.memory._dump_snapshot() wrote.")
    ],
    as_json: AsJson = False,
) -> None:
    """Read a torch memory snapshot and list its bytes by use. No code in the file is run."""
    from kvsim.interchange.torch_snapshot.reader import SnapshotLedger, ledgers, read_snapshot

    found = ledgers(read_snapshot(file))
    derived = ("allocated", "reserved", "external")
    rows = [
        {**ledger._asdict(), **{name: getattr(ledger, name) for name in derived}}
        for ledger in found
    ]
    if as_json:
        typer.echo(json.dumps({"devices": rows}, indent=2))
        return
    from rich.console import Console

    from kvsim.commands.terminal_tables import plain_table

    if not found:
        Console().print("The snapshot holds no segments: nothing was reserved.")
    parts = ("requested", "rounding", "awaiting_free", "split", "whole")
    words = {
        "requested": "asked for by live tensors",
        "rounding": "given beyond what was asked for",
        "awaiting_free": "freed, another stream may still use it",
        "split": "free, in segments that hold something",
        "whole": "free segments, could go back to the device",
    }
    assert set(parts) <= set(SnapshotLedger._fields)
    for ledger, row in zip(found, rows, strict=True):
        title = f"Device {ledger.device}: {ledger.segments:,} segments"
        table = plain_table("class", ">bytes", ">share", "", title=title)
        for name in parts:
            share = row[name] / ledger.reserved
            table.add_row(name, f"{row[name]:,}", f"{share:.1%}", words[name])
        table.add_section()
        table.add_row("reserved", f"{ledger.reserved:,}", "100.0%", "given by the device")
        table.add_row("largest free", f"{ledger.largest_free:,}", "", "the largest free block")
        table.add_row("peak", f"{ledger.peak_requested:,}", "", "most asked for, in its trace")
        Console().print(table)
