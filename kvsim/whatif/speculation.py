"""What speculation costs and buys: the same requests with the drafts of a scenario and without.

A drafter takes memory three times: its weights come out of the pool, its layers add to what every
token costs (and drafts widen recurrent states), and slots are held for drafts that may prove wrong.
It takes hits where the last block of one must be computed again. Without drafts all that is given
back, and every token waits for a step of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvsim.capacity.pool import SizedPool
from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.errors import InputError
from kvsim.report.numbers import count, number, percent, seconds, size
from kvsim.results.summary import SpeculationSummary
from kvsim.simulation import Simulation
from kvsim.speculation import TABLE
from kvsim.whatif.findings import Findings, FindingsTable


@dataclass(frozen=True)
class SpeculationSide:
    """The run with drafts, or the one without. token_bytes: bytes of KV a token. hit_share: the
    share of the prompt tokens found in the prefix cache; None where the cache was asked for
    nothing. drafts: `speculation` of the run's summary; None without drafts.
    """

    pool: SizedPool
    token_bytes: int
    hit_share: float | None
    preemptions: int
    tokens_per_s: float
    tpot_s: float | None
    e2e_s: float | None
    steps: int
    drafts: SpeculationSummary | None

    @property
    def pool_tokens(self) -> int:
        return self.pool.capacity_bytes // self.token_bytes


@dataclass(frozen=True)
class SpeculationCost:
    """One allocator of the scenario, with drafts and without. tokens: drafts a step. weights_bytes:
    of the drafter. state_bytes: bytes that drafts add to the recurrent states of each sequence.
    """

    label: str
    method: str
    tokens: int
    weights_bytes: int
    state_bytes: int
    drafted: SpeculationSide
    plain: SpeculationSide


def speculation_costs(simulation: Simulation) -> tuple[SpeculationCost, ...]:
    """Every allocator of the scenario; InputError for a scenario that drafts nothing."""
    scenario = simulation.scenario
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
    return tuple(
        SpeculationCost(
            label,
            config.method,
            config.num_speculative_tokens,
            drafter["weights_bytes"],
            drafter["state_bytes"],
            _side(simulation, options, label),
            _side(plain, options, label),
        )
        for options, label in zip(scenario.allocator, scenario.labels(), strict=True)
    )


def _side(simulation: Simulation, options: AllocatorOptions, label: str) -> SpeculationSide:
    summary = simulation.run(options, label).summary
    return SpeculationSide(
        simulation.pool,
        simulation.layout.bytes_per_token,
        summary.prefix_cache.hit_rate,
        summary.preemptions,
        summary.output_tokens_per_s or 0.0,
        summary.tpot_s.p50,
        summary.e2e_s.p50,
        summary.steps,
        summary.speculation,
    )


def speculation_findings(costs: Sequence[SpeculationCost], scenario: Mapping[str, Any]) -> Findings:
    """The findings of all allocators, a table and a sentence each. scenario: as simulated."""
    return Findings(
        "What drafted tokens cost and buy",
        [("allocators", str(len(costs)))],
        [],
        [_sides_table(cost) for cost in costs],
        scenario,
        {"runs": [_cost_data(cost) for cost in costs]},
    )


def cost_sentence(cost: SpeculationCost) -> str:
    """The cost and the gain of drafts in one sentence."""
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
    drafts = drafted.drafts
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
            f"{number(drafted.tokens_per_s)} tokens/s where there would be "
            f"{number(plain.tokens_per_s)}"
        )
    return f"{'; '.join(parts)}; {bought}."


def _sides_table(cost: SpeculationCost) -> FindingsTable:
    sides = cost.drafted, cost.plain
    slots = [None if side.drafts is None else side.drafts.draft_slots for side in sides]
    lengths = [
        None if side.drafts is None else side.drafts.mean_acceptance_length for side in sides
    ]
    cells: dict[str, tuple[str, ...]] = {
        "KV bytes per token": tuple(count(side.token_bytes) for side in sides),
        "pool": tuple(size(side.pool.capacity_bytes) for side in sides),
        "tokens it holds": tuple(count(side.pool_tokens) for side in sides),
        "held for drafts": tuple(map(percent, slots)),
        "prompt tokens hit": tuple(percent(side.hit_share) for side in sides),
        "preemptions": tuple(count(side.preemptions) for side in sides),
        "steps": tuple(count(side.steps) for side in sides),
        "tokens a verification": tuple(map(number, lengths)),
        "TPOT p50": tuple(seconds(side.tpot_s) for side in sides),
        "end to end p50": tuple(seconds(side.e2e_s) for side in sides),
        "tokens/s": tuple(number(side.tokens_per_s) for side in sides),
    }
    rows = [(name, *texts) for name, texts in cells.items()]
    return FindingsTable(cost.label, cost_sentence(cost), ("", "with drafts", "without"), rows)


def _cost_data(cost: SpeculationCost) -> dict[str, Any]:
    return {
        "label": cost.label,
        "method": cost.method,
        "num_speculative_tokens": cost.tokens,
        "drafter_weights_bytes": cost.weights_bytes,
        "state_bytes": cost.state_bytes,
        "with": _side_data(cost.drafted),
        "without": _side_data(cost.plain),
        "sentence": cost_sentence(cost),
    }


def _side_data(side: SpeculationSide) -> dict[str, Any]:
    return {
        "weights_bytes": side.pool.weights_bytes,
        "pool_bytes": side.pool.capacity_bytes,
        "pool_tokens": side.pool_tokens,
        "bytes_per_token": side.token_bytes,
        "hit_share": side.hit_share,
        "preemptions": side.preemptions,
        "output_tokens_per_s": side.tokens_per_s,
        "tpot_s": side.tpot_s,
        "e2e_s": side.e2e_s,
        "steps": side.steps,
        "speculation": side.drafts and side.drafts.as_json(),
    }
