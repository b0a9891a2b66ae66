"""`kvsim validate paper`: published figures next to simulated ones."""

import json
from pathlib import Path
from typing import Annotated

import typer

from kvsim.commands.arguments import AsJson


def paper(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first stream of requests.")] = 0,
    streams: Annotated[
        int, typer.Option(min=1, help="Simulated streams, each with the next seed.")
    ] = 80,
    lengths: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="ShareGPT's lengths as recorded, in place of the grids."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write table.md, checks.json, streams.csv and index.html here."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce the PagedAttention paper and its successors; exit 1 if a figure differs.

    80 streams take some five minutes.
    """
    from rich.console import Console

    from evidence.paper.findings import PARTS, validate_paper
    from evidence.paper.tables import markdown, streams_csv

    words = Console(stderr=True)
    part, parts = 0, PARTS + (out is not None)
    with words.status("") as status:

        def progress(what: str) -> None:
            nonlocal part
            part += 1
            line = f"simulating {what}, part {part} of {parts}"
            if words.is_terminal:
                status.update(line)
            else:
                words.print(line)

        found = validate_paper(seed, lengths, streams, progress=progress)
        answer = json.dumps(found.as_dict(), indent=1) + "\n"
        if out is not None:
            from evidence.paper import today
            from evidence.paper.page import make_page
            from kvsim.plumbing.writing import write_text

            progress("today")
            page = make_page(found, today.simulate(found.setting))
            write_text(out / "checks.json", answer)
            write_text(out / "table.md", markdown(found))
            write_text(out / "streams.csv", streams_csv(found))
            write_text(out / "index.html", page)
    typer.echo(answer if as_json else markdown(found), nl=False)
    raise typer.Exit(0 if found.ok else 1)
