"""`kvsim report DIR...`: write reports, single figures or tables of stored results."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from kvsim.results.result import Result

_Makers = Mapping[str, "Callable[[Result], bytes]"]


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Folders written by kvsim run --out.")
    ],
    forms: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="A,B...",
            help="Report: html, md, csv, png, apng or pdf. Figure: svg, png, pdf, html or json. "
            "Table: tex, md or csv. Several with commas.",
            show_default="html; of figures svg; of a table md",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output file for one report in one format, else a folder.",
            show_default="report.FORMAT in each DIR",
            metavar="PATH",
        ),
    ] = None,
    figures: Annotated[
        str | None,
        typer.Option(
            "--figure",
            metavar="A,B...",
            help="Figures of the report, each in a file: ttft, ledger, shares, ...",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B...",
            help="A table with these numbers of summary.json: ttft_s.p50,tpot_s.mean.",
        ),
    ] = None,
) -> None:
    """Write the reports, figures or tables of stored results. PNG, PDF and SVG need a local
    browser.
    """
    from kvsim.plumbing.writing import check_writable, replace_file
    from kvsim.results import store

    if figures is not None and columns is not None:
        raise InputError("figures and a table at once", where="--columns", remedy="call it twice")
    if figures is not None:
        makers = _figure_makers(_names(figures), _names(forms or "svg"))
    elif columns is not None:
        makers = _table_makers(_names(columns), _names(forms or "md"))
    else:
        makers = _report_makers(_names(forms or "html"))
    single = len(folders) == 1 and len(makers) == 1
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
        for name, make in makers.items():
            path = folder / name
            if out is not None:
                path = out if single else out / _of_place(place, name)
            check_writable(path.parent)
            made = make(result)
            replace_file(path, partial(Path.write_bytes, data=made))
            typer.echo(str(path))


def _of_place(place: str, name: str) -> str:
    """The name of an output file: `report.html` becomes PLACE.html, `ttft.svg` becomes
    PLACE.ttft.svg.
    """
    return f"{place}.{name.removeprefix('report.')}"


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def _report_makers(forms: list[str]) -> _Makers:
    """Functions that write whole reports, by file name: `report.html`, `report.pdf`."""
    from kvsim.report.formats import FORMS

    return {f"report.{form}": FORMS.get(form)().make for form in forms}


def _figure_makers(figures: list[str], forms: list[str]) -> _Makers:
    """Functions that write single figures, by file name: `ttft.svg`."""
    from kvsim.report.figure_files import FIGURE_FORMS
    from kvsim.report.figures import FIGURES
    from kvsim.report.one_figure import figure

    def make(name: str, form: str, result: "Result") -> bytes:
        return FIGURE_FORMS[form](figure(result, name))

    _check(forms, FIGURE_FORMS)
    for name in figures:
        FIGURES.get(name, "--figure")
    return {f"{name}.{form}": partial(make, name, form) for name in figures for form in forms}


def _table_makers(columns: list[str], forms: list[str]) -> _Makers:
    """Functions that write the table of chosen columns, by file name: `table.tex`."""
    from kvsim.report.table_files import TABLE_FORMS, table_of

    def make(form: str, result: "Result") -> bytes:
        return TABLE_FORMS[form](table_of(result, columns))

    _check(forms, TABLE_FORMS)
    return {f"table.{form}": partial(make, form) for form in forms}


def _check(forms: list[str], known: Mapping[str, object]) -> None:
    for form in forms:
        if form not in known:
            raise InputError(
                "unknown format", where="--format", value=form, limit=f"one of {', '.join(known)}"
            )
