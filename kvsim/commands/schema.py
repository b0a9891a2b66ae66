"""`kvsim schema`: the JSON Schema of scenario files, for editors."""

import json

import typer


def schema() -> None:
    """Print the JSON Schema of a scenario file. An editor that has it completes and checks keys.

    Example: kvsim schema > kvsim.schema.json; then begin a scenario with the line
    #:schema ./kvsim.schema.json
    """
    from kvsim.schema import scenario_schema

    typer.echo(json.dumps(scenario_schema(), indent=2, ensure_ascii=False))
