"""What speculation costs and buys: the same requests with the drafts of a scenario and without.

A drafter takes memory three times: its weights come out of the pool, its layers add to what every
token costs (and drafts widen recurrent states), and slots are held for drafts that may prove wrong.
It takes hits where the last block of one must be computed again. Without drafts all that is given
back, and every token waits for a step of its own.
"""

from dataclasses import dataclass
from typing import Any

from kvsim.capacity.pool import Pool
from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.errors import InputError
from kvsim.simulation import Simulation
from kvsim.speculation import TABLE


@dataclass(frozen=True)
class SpeculationSide:
    """One of the two. token_bytes: of KV and pool_tokens: of them in the pool. hit_share: of the
    prompt tokens, found in the prefix cache (None: nothing was asked for). drafts: what became of
    them, `speculation` of a run's summary (None: there were none).
    """

    pool: Pool
    token_bytes: int
    hit_share: float | None
    preemptions: int
    tokens_per_s: float
    tpot_s: float | None
    e2e_s: float | None
    steps: int
    drafts: dict[str, Any] | None

    @property
    def pool_tokens(self) -> int:
        return self.pool.capacity_bytes // self.token_bytes

    def as_dict(self) -> dict[str, Any]:
        """Its part of the JSON answer."""
        pool = self.pool
        return {
            "weights_bytes": pool.weights_bytes,
            "pool_bytes": pool.capacity_bytes,
            "pool_tokens": self.pool_tokens,
            "bytes_per_token": self.token_bytes,
            "hit_share": self.hit_share,
            "preemptions": self.preemptions,
            "output_tokens_per_s": self.tokens_per_s,
            "tpot_s": self.tpot_s,
            "e2e_s": self.e2e_s,
            "steps": self.steps,
            "speculation": self.drafts,
        }


@dataclass(frozen=True)
class SpeculationCost:
    """One allocator of the scenario, with drafts and without. weights_bytes: of the drafter.
    state_bytes: that drafts add to each sequence's recurrent states.
    """

    label: str
    method: str
    tokens: int
    weights_bytes: int
    state_bytes: int
    drafted: SpeculationSide
    plain: SpeculationSide

    def as_dict(self) -> dict[str, Any]:
        """The entry of the JSON answer."""
        return {
            "label": self.label,
            "method": self.method,
            "num_speculative_tokens": self.tokens,
            "drafter_weights_bytes": self.weights_bytes,
            "state_bytes": self.state_bytes,
            "with": self.drafted.as_dict(),
            "without": self.plain.as_dict(),
        }


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
    cache = summary["prefix_cache"]
    asked = cache["query_tokens"]
    return SpeculationSide(
        simulation.pool,
        simulation.layout.bytes_per_token,
        cache["hit_tokens"] / asked if asked else None,
        summary["preemptions"],
        summary["output_tokens_per_s"],
        summary["tpot_s"]["p50"],
        summary["e2e_s"]["p50"],
        summary["steps"],
        summary.get("speculation"),
    )
