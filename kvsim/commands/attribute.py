"""`kvsim attribute`: how many sequences, tokens per second and GPUs each class of waste costs."""

import json
from typing import TYPE_CHECKING

import typer

from kvsim.commands.arguments import AsJson, Changes, ScenarioName

if TYPE_CHECKING:
    from rich.table import Table

    from kvsim.whatif.attribution import Attribution


def attribute(
    scenario: ScenarioName,
    set_: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the same stream again with one class of waste after the other removed."""
    from rich.console import Console

    from kvsim.commands.tables import out as stdout
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation
    from kvsim.whatif.attribution import attribute as run

    simulation = Simulation(Scenario.load(scenario, set_ or []))
    with Console(stderr=True).status("") as status:
        found = run(simulation, lambda label, what: status.update(f"{label}, {what}"))
    if as_json:
        answer = {"runs": [attribution.as_dict() for attribution in found]}
        typer.echo(json.dumps(answer, indent=2))
        return
    console = stdout()
    for attribution in found:
        console.print(_table(attribution))
    console.print("Each row: the gain when this class is removed too, after those above it.")


def _table(found: "Attribution") -> "Table":
    from kvsim.commands.tables import numbers_table

    heads = ("", "sequences", "tokens/s", "GPUs", "end to end, s")
    table = numbers_table(*heads, title=found.label)

    def seconds(value: float | None) -> str:
        return "" if value is None else f"{value:,.2f}"

    actual, ideal = found.actual, found.ideal
    table.add_row(
        "as it is",
        f"{actual.running:,.2f}",
        f"{actual.tokens_per_s:,.0f}",
        "1",
        seconds(actual.e2e_s),
    )
    for cost in found.costs:
        table.add_row(
            f"without {' and '.join(cost.classes)}",
            f"{cost.running:+,.2f}",
            f"{cost.tokens_per_s:+,.0f}",
            f"{cost.gpus:+.2f}",
            seconds(cost.after.e2e_s),
        )
    table.add_section()
    gpus = 1 + sum(cost.gpus for cost in found.costs)
    table.add_row(
        "without waste",
        f"{ideal.running:,.2f}",
        f"{ideal.tokens_per_s:,.0f}",
        f"{gpus:.2f}",
        seconds(ideal.e2e_s),
    )
    return table
