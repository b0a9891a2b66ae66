"""Arguments and options that several commands share."""

import os
import shlex
from typing import Annotated

import typer

from kvsim.plumbing.counts import whole

MOST_SEEDS = 10_000  # each is a whole bisection, or a run of every setting

ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A TOML file, or the name of a recipe.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=VALUE", help="Change one key of the scenario. Repeatable."),
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Processes (default: one per processor; one without joblib)."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Print every table, sentence and note, not 24 lines.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON only.")]


def run_command(scenario: str, changes: list[str] | None) -> str:
    """The command that runs a scenario with these changes, quoted for a shell."""
    given = [part for each in changes or [] for part in ("--set", each)]
    return " ".join(_quoted(word) for word in ["kvsim", "run", scenario, *given])


def count_of(text: str) -> int:
    """Parse a count of one or more, with an optional suffix: `65536`, `64K`, `1M`."""
    try:
        count = whole(text)
    except ValueError:
        count = 0
    if count < 1:
        raise typer.BadParameter(f"{text!r} is no count of one or more, as 65536 or 64K (of 1,024)")
    return count


def _quoted(word: str) -> str:
    """Quote a word for a shell; bytes that are not valid text are written as escapes of bash's
    $'...'.
    """
    try:
        word.encode()
    except UnicodeEncodeError:
        escaped = os.fsencode(word).decode("ascii", "backslashreplace").replace("'", "\\'")
        return f"$'{escaped}'"
    return shlex.quote(word)
