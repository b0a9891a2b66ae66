"""Costs and gains of speculative decoding: the same requests with and without drafts.

A drafter takes memory in three ways. Its weights reduce the pool, and its layers add to the KV
bytes of every token (drafts widen recurrent states). Slots are allocated for drafts that may be
rejected. It also loses a hit if the last block of the hit must be recomputed. Without drafts that
memory is free, but each output token needs a step.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.errors import InputError
from kvsim.report.numbers import count, number, percent, seconds, size
from kvsim.report.remarks import step_time_remarks
from kvsim.results.summary import SpeculationSummary
from kvsim.simulation import Simulation
from kvsim.speculation import TABLE
from kvsim.whatif.deployments import check_alone
from kvsim.whatif.findings import Findings, FindingsTable, as_data


class SpeculationSide(NamedTuple):
    """The run with drafts, or the run without.

    weights_bytes: weights of the target model and the drafter. bytes_per_token: KV bytes per token.
    hit_share: share of prompt tokens hit in the prefix cache; None if nothing was looked up.
    speculation: that part of the run's summary; None without drafts.
    """

    weights_bytes: int
    pool_bytes: int
    pool_tokens: int
    bytes_per_token: int
    hit_share: float | None
    preemptions: int
    output_tokens_per_s: float
    tpot_s: float | None
    e2e_s: float | None
    steps: int
    running_mean: float | None
    speculation: SpeculationSummary | None


class SpeculationCost(NamedTuple):
    """One allocator of the scenario, with drafts and without.

    sized_by: the option that sets the pool's size. num_speculative_tokens: drafts per step.
    state_bytes: bytes that drafts add to the recurrent states of each sequence.
    """

    label: str
    method: str
    num_speculative_tokens: int
    drafter_weights_bytes: int
    state_bytes: int
    sized_by: str
    drafted: SpeculationSide
    plain: SpeculationSide

    def as_dict(self) -> dict[str, Any]:
        """The entry of the JSON answer."""
        data: dict[str, Any] = as_data(self)
        del data["sized_by"]
        return data | {
            "with": data.pop("drafted"),
            "without": data.pop("plain"),
            "sentence": cost_sentence(self),
        }


def speculation_costs(
    simulation: Simulation, progress: Callable[[str], None] = lambda what: None
) -> tuple[SpeculationCost, ...]:
    """Simulate every allocator with and without drafts; InputError for a scenario without
    speculative decoding. progress: called with the name of each simulation as it begins.
    """
    scenario = simulation.scenario
    check_alone(scenario, "speculation")
    config = scenario.speculative_config
    if config is None:
        raise InputError(
            "the scenario drafts nothing",
            where=TABLE,
            remedy='give it a table such as {method = "eagle", num_speculative_tokens = 3, '
            "acceptance_rate = 0.7}",
        )
    without = scenario.model_copy(update={"speculative_config": None})
    plain = Simulation(without, simulation.stream)
    drafter = simulation.resolved()["provenance"]["drafter"]
    runs, most = itertools.count(1), 2 * len(scenario.allocator)

    def side(of: Simulation, options: AllocatorOptions, label: str, how: str) -> SpeculationSide:
        progress(f"{label}, {how}: run {next(runs)} of {most}")
        return _side(of, options, label)

    return tuple(
        SpeculationCost(
            label,
            config.method,
            config.num_speculative_tokens,
            drafter["weights_bytes"],
            drafter["state_bytes"],
            simulation.pool.sized_by,
            side(simulation, options, label, "with drafts"),
            side(plain, options, label, "without"),
        )
        for options, label in zip(scenario.allocator, scenario.labels(), strict=True)
    )


def _side(simulation: Simulation, options: AllocatorOptions, label: str) -> SpeculationSide:
    summary, pool = simulation.run(options, label).summary, simulation.pool
    token_bytes = simulation.layout.bytes_per_token
    return SpeculationSide(
        pool.weights_bytes,
        pool.capacity_bytes,
        simulation.layout.tokens_in(pool.capacity_bytes),
        token_bytes,
        summary.prefix_cache.hit_rate,
        summary.preemptions,
        summary.output_tokens_per_s or 0.0,
        summary.tpot_s.p50,
        summary.e2e_s.p50,
        summary.steps,
        summary.running_mean,
        summary.speculation,
    )


def speculation_findings(costs: Sequence[SpeculationCost], scenario: Mapping[str, Any]) -> Findings:
    """The findings for all allocators: a table and a sentence for each, and the source of the step
    times.

    scenario: the tables that were simulated.
    """
    notes = step_time_remarks(scenario, costs[0].drafted.running_mean)
    return Findings(
        "What drafted tokens cost and buy",
        [("allocators", str(len(costs)))],
        [f"note: {note}" for note in notes],
        [_sides_table(cost) for cost in costs],
        scenario,
        {"runs": [cost.as_dict() for cost in costs], "notes": notes},
        num_verdict=0,
    )


def cost_sentence(cost: SpeculationCost) -> str:
    """A sentence on what drafts cost and gain."""
    drafted, plain = cost.drafted, cost.plain
    more = drafted.bytes_per_token / plain.bytes_per_token - 1 if plain.bytes_per_token else 0.0
    holds = f"the pool, given by {cost.sized_by}, holds {count(drafted.pool_tokens)} tokens"
    if drafted.pool_tokens != plain.pool_tokens:
        holds = (
            f"the pool holds {count(drafted.pool_tokens)} tokens where it would hold "
            f"{count(plain.pool_tokens)}"
        )
    price = "neither weights nor KV of its own"
    if cost.drafter_weights_bytes or more:
        price = (
            f"{size(cost.drafter_weights_bytes)} of weights and {percent(more)} more KV per token"
        )
    if cost.state_bytes:
        price += f", and {size(cost.state_bytes)} more of recurrent states a sequence"
    parts = [f"{cost.method} with {cost.num_speculative_tokens} drafts costs {price}; {holds}"]
    drafts = drafted.speculation
    assert drafts is not None  # the scenario drafts
    parts.append(f"{percent(drafts.draft_slots)} of it is held for drafts and not used")
    if drafted.hit_share is not None and plain.hit_share is not None:
        parts.append(
            f"{percent(drafted.hit_share)} of the prompt tokens are found in the prefix cache, "
            f"{percent(plain.hit_share)} without"
        )
    bought = "nothing was verified"
    if drafts.mean_acceptance_length is not None:
        bought = (
            f"it buys {number(drafts.mean_acceptance_length)} tokens a verification: "
            f"{seconds(drafted.tpot_s)} a token where it would be {seconds(plain.tpot_s)}, and "
            f"{number(drafted.output_tokens_per_s)} tokens/s where there would be "
            f"{number(plain.output_tokens_per_s)}"
        )
    return f"{'; '.join(parts)}; {bought}."


def _sides_table(cost: SpeculationCost) -> FindingsTable:
    sides = cost.drafted, cost.plain
    drafts = [side.speculation for side in sides]
    slots = [None if found is None else found.draft_slots for found in drafts]
    lengths = [None if found is None else found.mean_acceptance_length for found in drafts]
    cells: dict[str, tuple[str, ...]] = {
        "KV bytes per token": tuple(count(side.bytes_per_token) for side in sides),
        "pool": tuple(size(side.pool_bytes) for side in sides),
        "tokens it holds": tuple(count(side.pool_tokens) for side in sides),
        "held for drafts": tuple(map(percent, slots)),
        "prompt tokens hit": tuple(percent(side.hit_share) for side in sides),
        "preemptions": tuple(count(side.preemptions) for side in sides),
        "steps": tuple(count(side.steps) for side in sides),
        "tokens a verification": tuple(map(number, lengths)),
        "TPOT p50": tuple(seconds(side.tpot_s) for side in sides),
        "end to end p50": tuple(seconds(side.e2e_s) for side in sides),
        "tokens/s": tuple(number(side.output_tokens_per_s) for side in sides),
    }
    rows = [(name, *texts) for name, texts in cells.items()]
    return FindingsTable(cost.label, cost_sentence(cost), ("", "with drafts", "without"), rows)
