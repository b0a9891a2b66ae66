"""`kvsim options`: list every key that a scenario may contain."""

from inspect import cleandoc
from typing import Annotated

import typer


def options(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]",
            help="List only this table, kind or key: scheduler, paged, ...",
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the whole reference as Markdown.")
    ] = False,
) -> None:
    """List every key of a scenario, with type, limits and default."""
    from difflib import get_close_matches

    from rich.console import Console

    from kvsim.commands import reference
    from kvsim.commands.terminal_tables import plain_table
    from kvsim.plumbing.errors import InputError

    if markdown:
        typer.echo(reference.markdown(), nl=False)
        return
    chosen = [
        entry
        for entry in reference.entries()
        if table is None or table in (entry.table, entry.kind, entry.table.split(".")[0])
    ]
    only = None
    if not chosen:  # a key, in every table that has it
        only = table
        chosen = [
            entry
            for entry in reference.entries()
            if any(key.name == only for key in reference.keys(entry.options))
        ]
    if not chosen:
        names = {
            name for entry in reference.entries() for name in (entry.table, entry.kind) if name
        }
        keys = {key.name for entry in reference.entries() for key in reference.keys(entry.options)}
        near = get_close_matches(str(table), [*names, *keys], n=5)
        raise InputError(
            "no such table, kind or key",
            value=table,
            remedy=f"near: {', '.join(near)}" if near else "kvsim options lists all",
        )
    console = Console()
    for entry in chosen:
        title = entry.table if entry.kind is None else f"{entry.table}: kind = {entry.kind}"
        console.print(f"[bold]{title}[/bold]")
        if only is None:
            for paragraph in cleandoc(entry.options.__doc__ or "").split("\n\n"):
                console.print(" ".join(paragraph.split()), markup=False, highlight=False)
        rows = plain_table("key", "type", "default", folds=True)
        for key in reference.keys(entry.options):
            if only not in (None, key.name):
                continue
            rows.add_row(key.name, key.type.replace("[", r"\["), key.default.replace("[", r"\["))
        console.print(rows)
        console.print()
