"""`kvsim doctor`: what a server suffers from, and the flag that cures it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from kvsim.whatif.doctor.diagnosis import Diagnosis


def doctor(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A TOML file, or the name of a recipe.")
    ],
    allocator: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Whose server (default: the first paged one)."),
    ] = None,
    requests: Annotated[
        int, typer.Option(min=100, help="Examine so many requests of the stream at most.")
    ] = 1000,
    repeat: Annotated[
        int,
        typer.Option(min=2, metavar="SEEDS", help="Seeds to search on, to test on and to tell by."),
    ] = 4,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes (default: one a processor).")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=VALUE", help="Change one key; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write diagnosis.json and diagnosis.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Say what a server suffers from, worst first, on what evidence, and which flag cures it.

    What the ledger shows is a suspicion; it becomes a cause where a run without it is better,
    beyond chance and by more than a twentieth.
    """
    from rich.console import Console

    from kvsim.plumbing.writing import check_writable, replace_files
    from kvsim.scenario import load_tables
    from kvsim.whatif.capacity.search import Runner
    from kvsim.whatif.doctor import page
    from kvsim.whatif.doctor.examine import Doctor
    from kvsim.whatif.doctor.patient import patient_of
    from kvsim.whatif.sweep.backends import BACKENDS

    table, folder = load_tables(scenario, set_ or [])
    if out is not None:
        check_writable(out)
    with Console(stderr=True).status("") as status:
        runner = Runner(
            BACKENDS.get("processes")(jobs=jobs), lambda runs: status.update(f"{runs} runs")
        )
        patient = patient_of(table, folder, allocator, requests)
        diagnosis = Doctor(patient.table, folder, runner, repeat=repeat).diagnose(patient.notes)
    text = json.dumps(page.as_dict(diagnosis), indent=2)
    if out is not None:
        html = page.make_page(diagnosis)
        replace_files(
            out,
            {
                "diagnosis.json": lambda path: path.write_text(f"{text}\n", encoding="utf-8"),
                "diagnosis.html": lambda path: path.write_text(html, encoding="utf-8"),
            },
        )
    if as_json:
        typer.echo(text)
        return
    _print(diagnosis, Console(highlight=False))
    if out is not None:
        typer.echo(str(out / "diagnosis.html"))


def _print(diagnosis: "Diagnosis", console: "Console") -> None:
    from kvsim.commands.whatif_tables import printed
    from kvsim.whatif.doctor import page
    from kvsim.whatif.doctor.words import sentences

    console.print(printed(page.signs_table(diagnosis)))
    if diagnosis.findings:
        cells = page.findings_table(diagnosis)
        console.print(printed(cells))
        console.print(cells.note, markup=False)
        console.print()
    for line in sentences(diagnosis):
        console.print(line, markup=False)
