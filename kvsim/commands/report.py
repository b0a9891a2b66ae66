"""`kvsim report DIR...`: make the reports of stored results anew, in several forms."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Folders written by kvsim run --out.")
    ],
    forms: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="A,B...",
            help="html, md, csv, png, apng or pdf; several with commas.",
        ),
    ] = "html",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output file for one report in one format, else a folder.",
            show_default="report.FORMAT in each DIR",
            metavar="PATH",
        ),
    ] = None,
) -> None:
    """Write the reports of stored results again. PNG and PDF need a local browser."""
    from kvsim.plumbing.errors import InputError
    from kvsim.plumbing.writing import check_writable, replace_file
    from kvsim.report.formats import FORMS
    from kvsim.results import store

    names = list(dict.fromkeys(name.strip() for name in forms.split(",")))
    makers = {name: FORMS.get(name)() for name in names}
    single = len(folders) == 1 and len(names) == 1
    places = [folder.resolve().name for folder in folders]
    if out is not None and not single and len(set(places)) < len(places):
        raise InputError(
            "two folders of the same name would have the same reports",
            where="--out",
            value=", ".join(map(str, folders)),
            remedy="leave out --out: each report is then in its own folder",
        )
    for folder, place in zip(folders, places, strict=True):
        result = store.read(folder)
        for name, maker in makers.items():
            if out is None:
                path = folder / f"report.{name}"
            else:
                path = out if single else out / f"{place}.{name}"
            check_writable(path.parent)
            made = maker.make(result)
            replace_file(path, partial(Path.write_bytes, data=made))
            typer.echo(str(path))
