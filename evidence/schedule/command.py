"""`kvsim validate schedule`: compare recorded schedules with the simulator's, row by row."""

import json
from pathlib import Path
from typing import Annotated

import typer


def schedule(
    cases: Annotated[
        list[Path],
        typer.Argument(
            metavar="CASE.json",
            help="Recorded cases, each beside its CASE.expected.json.gz, or folders of cases.",
        ),
    ],
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print {case, steps, equal, first_difference}, a list for several cases."
        ),
    ] = False,
) -> None:
    """Replay recorded schedules and compare every row and field; exit 0 only if all are equal."""
    from evidence.schedule.case import cases_in
    from evidence.schedule.verdict import validate_case

    verdicts = []
    for path in [case for each in cases for case in cases_in(each)]:
        verdict = validate_case(path)
        verdicts.append(verdict)
        if not as_json:
            typer.echo(verdict.text())
    if as_json:
        found = [verdict.as_dict() for verdict in verdicts]
        typer.echo(json.dumps(found[0] if len(found) == 1 else found, indent=2))
    raise typer.Exit(0 if all(verdict.equal for verdict in verdicts) else 1)
