"""Arguments and options that several commands share, said once."""

from typing import Annotated

import typer

ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A TOML file, or the name of a recipe.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=VALUE", help="Change one key; may be repeated."),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes (default: one a processor).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, and nothing else.")]
