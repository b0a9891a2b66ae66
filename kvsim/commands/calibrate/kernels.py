"""`kvsim calibrate kernels SOURCE`: convert measured kernel times for `[step_time] kind =
"kernels"`.
"""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from kvsim.commands.arguments import AsJson


def kernels(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="WHEEL-or-FOLDER",
            help="NVIDIA's aisimulate wheel, what it unpacks to, or a device's folder: "
            "FAMILY/ENGINE/VERSION/STEM.parquet or .csv.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Output folder of the tables.")],
    device: Annotated[
        str | None,
        typer.Option(
            help="Device of the kernels, if the folder is that of one device: a name of "
            "`kvsim devices`, or the name in your [device]."
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Take only this device. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Turn measured kernels into the tables that `kernels` step times read."""
    from rich.console import Console

    from kvsim.device import named_device
    from kvsim.plumbing.errors import InputError
    from kvsim.plumbing.extras import need
    from kvsim.plumbing.writing import check_writable, replace_files
    from kvsim.step_time.kernels.distil import distilled, write_tables
    from kvsim.step_time.kernels.source import opened, sources

    need("pyarrow", where="kvsim calibrate kernels")
    check_writable(out)
    wanted = {named_device(name, "--only").name for name in only or ()}
    written = []
    console = Console(stderr=True)
    with opened(source) as folder:
        found = sources(folder, device)
        missing = wanted - {each.device for each in found}
        if missing:
            raise InputError(
                "no kernels of this device were measured",
                where="--only",
                value=", ".join(sorted(missing)),
                limit=", ".join(sorted({each.device for each in found})),
            )
        for each in found:
            if wanted and each.device not in wanted:
                continue
            with console.status(f"{each.device}, {each.engine}"):
                rows = distilled(each.folder, each.engine)
                replace_files(out, {each.file_name: partial(write_tables, rows=rows)})
            points = sum(len(row.curve.x) for row in rows)
            size = (out / each.file_name).stat().st_size
            written.append(
                {"file": each.file_name, "curves": len(rows), "points": points, "bytes": size}
            )
    if as_json:
        typer.echo(json.dumps({"folder": str(out), "tables": written}, indent=1))
        return
    from kvsim.commands.terminal_tables import numbers_table

    table = numbers_table("table", "curves", "points", "bytes", title=f"Tables in {out}")
    for row in written:
        figures = (f"{row[key]:,}" for key in ("curves", "points", "bytes"))
        table.add_row(str(row["file"]), *figures)
    Console().print(table)
