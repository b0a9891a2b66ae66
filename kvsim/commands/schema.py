"""`kvsim schema`: print the JSON Schema of scenario files, for editors."""

import json

import typer


def schema() -> None:
    """Print the JSON Schema of a scenario file, for editors.

    Then begin a scenario with the line `#:schema ./kvsim.schema.json`: the editor completes and
    checks its keys.
    """
    from kvsim.scenario.json_schema import scenario_schema

    typer.echo(json.dumps(scenario_schema(), indent=2, ensure_ascii=False))
