"""`kvsim recipes`: list the scenarios that ship with kvsim, with the question each one answers."""

import json
from typing import Annotated

import typer

from kvsim.commands.arguments import AsJson


def recipes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Print this recipe.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the scenarios that run by name, or print one."""
    from kvsim.commands.terminal_tables import out, print_table
    from kvsim.plumbing.reading.files import read_string
    from kvsim.plumbing.reading.toml_text import read_table
    from kvsim.scenario import find_recipe
    from kvsim.scenario import recipes as shipped

    if name is not None:
        typer.echo(read_string(find_recipe(name)), nl=False)
        return
    answer = []
    for recipe, path in shipped().items():
        table = read_table(path)
        allocators = [each["kind"] for each in table["allocator"]]
        answer.append(
            {
                "name": recipe,
                "question": table["question"]["text"],
                "model": table["model"].get("name"),
                "device": table["device"].get("name"),
                "allocators": allocators,
                "trace": table["workload"].get("name"),
            }
        )
    if as_json:
        typer.echo(json.dumps({"recipes": answer}, indent=2))
        return
    print_table(
        ("recipe", "question", "model", "device"),
        ([row["name"], row["question"], row["model"] or "", row["device"]] for row in answer),
    )
    out().print("kvsim run NAME runs one; kvsim recipes NAME prints it.", soft_wrap=True)
