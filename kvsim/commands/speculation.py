"""`kvsim speculation`: what tokens drafted ahead cost in KV memory and hits, and what they buy."""

import json
from typing import TYPE_CHECKING

import typer

from kvsim.commands.arguments import AsJson, Changes, ScenarioName

if TYPE_CHECKING:
    from rich.table import Table

    from kvsim.whatif.speculation import SpeculationCost


def speculation(
    scenario: ScenarioName,
    set_: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the same stream with the drafts of a scenario and without them."""
    from rich.console import Console

    from kvsim.commands.tables import out as stdout
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation
    from kvsim.whatif.speculation import speculation_costs

    simulation = Simulation(Scenario.load(scenario, set_ or []))
    with Console(stderr=True).status("with drafts, and without"):
        costs = speculation_costs(simulation)
    if as_json:
        answer = {"runs": [cost.as_dict() | {"sentence": sentence(cost)} for cost in costs]}
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    console = stdout()
    for cost in costs:
        console.print(_table(cost))
        console.print(sentence(cost), highlight=False)


def sentence(cost: "SpeculationCost") -> str:
    """The answer in words."""
    from kvsim.report.numbers import count, number, percent, seconds, size

    drafted, plain = cost.drafted, cost.plain
    more = drafted.token_bytes / plain.token_bytes - 1 if plain.token_bytes else 0.0
    holds = f"the pool, given by {drafted.pool.sized_by}, holds {count(drafted.pool_tokens)} tokens"
    if drafted.pool_tokens != plain.pool_tokens:
        holds = (
            f"the pool holds {count(drafted.pool_tokens)} tokens where it would hold "
            f"{count(plain.pool_tokens)}"
        )
    price = "neither weights nor KV of its own"
    if cost.weights_bytes or more:
        price = f"{size(cost.weights_bytes)} of weights and {percent(more)} more KV per token"
    if cost.state_bytes:
        price += f", and {size(cost.state_bytes)} more of recurrent states a sequence"
    parts = [f"{cost.method} with {cost.tokens} drafts costs {price}; {holds}"]
    drafts = drafted.drafts or {}
    parts.append(f"{percent(drafts['draft_slots'])} of it is held for drafts and not used")
    if drafted.hit_share is not None and plain.hit_share is not None:
        parts.append(
            f"{percent(drafted.hit_share)} of the prompt tokens are found in the prefix cache, "
            f"{percent(plain.hit_share)} without"
        )
    bought = "nothing was verified"
    if drafts["mean_acceptance_length"] is not None:
        bought = (
            f"it buys {number(drafts['mean_acceptance_length'])} tokens a verification: "
            f"{seconds(drafted.tpot_s)} a token where it would be {seconds(plain.tpot_s)}, and "
            f"{number(drafted.tokens_per_s)} tokens/s where there would be "
            f"{number(plain.tokens_per_s)}"
        )
    return f"{'; '.join(parts)}; {bought}."


def _table(cost: "SpeculationCost") -> "Table":
    from kvsim.commands.tables import numbers_table
    from kvsim.report.numbers import count, number, percent, seconds, size

    table = numbers_table("", "with drafts", "without", title=cost.label)
    sides = cost.drafted, cost.plain
    shares = [None if side.drafts is None else side.drafts["draft_slots"] for side in sides]
    lengths = [None if s.drafts is None else s.drafts["mean_acceptance_length"] for s in sides]
    for name, *cells in (
        ("KV bytes per token", *(count(side.token_bytes) for side in sides)),
        ("pool", *(size(side.pool.capacity_bytes) for side in sides)),
        ("tokens it holds", *(count(side.pool_tokens) for side in sides)),
        ("held for drafts", *map(percent, shares)),
        ("prompt tokens hit", *(percent(side.hit_share) for side in sides)),
        ("preemptions", *(count(side.preemptions) for side in sides)),
        ("steps", *(count(side.steps) for side in sides)),
        ("tokens a verification", *map(number, lengths)),
        ("TPOT p50", *(seconds(side.tpot_s) for side in sides)),
        ("end to end p50", *(seconds(side.e2e_s) for side in sides)),
        ("tokens/s", *(number(side.tokens_per_s) for side in sides)),
    ):
        table.add_row(name, *cells)
    return table
