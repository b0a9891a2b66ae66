"""`kvsim report DIR`: make the page of a stored result anew."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder written by kvsim run --out.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where the page goes.", show_default="DIR/report.html", metavar="FILE"),
    ] = None,
) -> None:
    """Make the page of a stored result anew: one HTML file that opens offline."""
    from kvsim.plumbing.writing import write_text
    from kvsim.report.page import make_page
    from kvsim.results import store

    path = folder / store.REPORT if out is None else out
    write_text(path, make_page(store.read(folder)))
    typer.echo(str(path))
