"""Speculative decoding: accepted drafts, their cost, and what they must not change."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.auditor import Auditor
from support.cases import streams
from support.drafting import METHODS, SCHEDULERS, suits
from support.drafting import drafting as made
from support.outcomes import unless_thrashing
from support.pairs import named, pairs

import kvsim
from kvsim.engine.speculation.acceptance import DrawnAcceptance
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.sequence import Sequence
from kvsim.simulation import Simulation
from kvsim.step import Chunk, StepShape
from kvsim.step_time.drafted import BlockPass, DraftingPasses
from kvsim.whatif.speculation import cost_sentence as sentence
from kvsim.whatif.speculation import speculation_costs

PLAIN_STEP = {"kind": "linear", "base_us": 1000}


@pytest.mark.parametrize(("config", "scheduler"), pairs(METHODS, SCHEDULERS, allowed=suits))
@settings(max_examples=6, deadline=None)
@given(requests=streams(), size=st.sampled_from([1, 4, 16]))
@unless_thrashing
def test_ledger_with_drafts_is_consistent_and_all_requests_finish(
    config: dict[str, Any], scheduler: dict[str, Any], requests: list[Request], size: int
) -> None:
    scenario = Scenario.from_table({
        "model": {"name": "opt-125m", "max_model_len": 1024},
        "device": {"name": "a100-40gb"},
        "memory": {"kv_cache_tokens": 1200},
        "allocator": [{"kind": "paged", "block_size": size}],
        "scheduler": scheduler,
        "step_time": {"kind": "linear", "base_us": 8000, "prefill_token_us": 40},
        "speculative_config": config,
    })  # fmt: skip
    simulation = Simulation(scenario, requests)
    run = simulation.run(scenario.allocator[0], "audited", observer=Auditor())
    found, drafts = run.summary["requests"], run.summary["speculation"]
    assert found["finished"] + found["rejected"] == len(requests)
    assert 0 <= drafts["accepted_tokens"] <= drafts["draft_tokens"]
    assert drafts["verifications"] <= drafts["draft_tokens"]
    made_by = {row["id"]: row["output_tokens"] for row in run.requests.to_dict("records")}
    assert all(made_by[r.id] <= r.output_tokens for r in requests)


@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_single_sequence_needs_one_step_per_accepted_tokens(tables: Any, accepted: int) -> None:
    config = {
        "method": "eagle", "num_speculative_tokens": 3, "acceptance_pattern": [accepted],
        "draft_us": 500,
    }  # fmt: skip
    requests = [Request("a", 0, 100, 1 + 4 * 12)]
    (run,) = kvsim.simulate(made(tables, config, step_time=PLAIN_STEP), requests).runs
    steps = 1 + 48 // (1 + accepted)
    assert run.summary["steps"] == steps
    assert run.summary["makespan_s"] == pytest.approx(steps * 1.5e-3)
    assert run.summary["speculation"]["mean_acceptance_length"] == 1 + accepted


def test_never_accepted_drafts_change_only_time_and_slots(tables: Any) -> None:
    requests = [Request(f"r{i}", 10**9 * i, 60 + i, 40) for i in range(12)]
    config = {"method": "eagle", "num_speculative_tokens": 4, "acceptance_rate": 0.0}
    (plain,) = kvsim.simulate(made(tables, None), requests).runs
    (drafted,) = kvsim.simulate(made(tables, config), requests).runs
    assert drafted.summary["steps"] == plain.summary["steps"]
    assert drafted.summary["makespan_s"] == plain.summary["makespan_s"]
    assert drafted.summary["speculation"]["accepted_tokens"] == 0
    assert 0 < drafted.summary["speculation"]["draft_slots"] < 0.05
    memory = drafted.summary["memory"]["time_mean"]
    assert memory["used"] < plain.summary["memory"]["time_mean"]["used"] * 1.001


def test_accepted_drafts_follow_the_acceptance_rates(tables: Any) -> None:
    rates = (0.8, 0.5, 0.1)
    draws = DrawnAcceptance(rates, 7).of(Sequence(Request("a", 0, 1, 200_000), 0))
    shares = [np.mean(np.array(draws) > place) for place in range(3)]
    assert shares == pytest.approx(rates, abs=0.005)  # four standard errors of the widest
    again = DrawnAcceptance(rates, 7).of(Sequence(Request("a", 0, 1, 200_000), 0))
    other = DrawnAcceptance(rates, 7).of(Sequence(Request("b", 0, 1, 200_000), 0))
    assert draws == again != other
    # The three ways to say how many drafts are accepted, where they mean the same.
    config = {"method": "eagle", "num_speculative_tokens": 2}
    requests = [Request(f"r{i}", 0, 40, 64) for i in range(8)]
    ways = (
        {"acceptance_rate": 1.0}, {"synthetic_acceptance_rates": [1.0, 1.0]},
        {"synthetic_acceptance_length": 3.0}, {"acceptance_pattern": [2]},
    )  # fmt: skip
    found = [kvsim.simulate(made(tables, config | way), requests).runs[0].summary for way in ways]
    assert len({(run["steps"], run["makespan_s"]) for run in found}) == 1


def test_eagle_head_adds_a_kv_layer_and_hits_lose_their_last_block(tables: Any) -> None:
    shared = ((1 << 40, 64),)
    requests = [Request(f"r{i}", 10**12 * i, 65, 4, prompt_runs=(*shared, (i << 20, 1)))
                for i in range(3)]  # fmt: skip
    config = {"method": "eagle", "num_speculative_tokens": 2, "acceptance_rate": 0.5}
    hits = {}
    for drops in False, True:
        drafts = config | {"disable_lookahead_block_hashes": drops}
        (run,) = kvsim.simulate(made(tables, drafts), requests).runs
        hits[drops] = list(run.requests["cached_tokens"])
    # Hashes that cover the next token part where the prompts part: after 48 of 64 tokens.
    assert hits == {False: [0, 48, 48], True: [0, 48, 48]}
    (plain,) = kvsim.simulate(made(tables, None), requests).runs
    assert list(plain.requests["cached_tokens"]) == [0, 64, 64]
    head = Simulation(Scenario.from_table(made(tables, config)), requests)
    assert head.layout.bytes_per_token * 12 == head.model.kv_layout().bytes_per_token * 13
    assert head.layout.groups[0].draft_layers == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "medusa"}, "speculative_config.method"),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens"),
        ({"acceptance_pattern": [1]}, "give one of"),
        ({"acceptance_rate": None}, "give one of"),
        ({"acceptance_rate": 1.5}, "acceptance_rate"),
        ({"acceptance_rate": None, "synthetic_acceptance_rates": [0.5, 0.6, 0.1]}, "rise"),
        ({"acceptance_rate": None, "synthetic_acceptance_rates": [0.5]}, "needs 3"),
        ({"acceptance_rate": None, "synthetic_acceptance_length": 4.5}, "at most 4"),
        ({"acceptance_rate": None, "acceptance_pattern": [4]}, "more than the 3"),
        ({"method": "draft_model"}, "needs model"),
        ({"method": "mtp", "model": "opt-125m"}, "no model but"),
        ({"method": "ngram", "disable_lookahead_block_hashes": True}, "changes nothing"),
        ({"model": "no-such-model"}, "speculative_config.model"),
    ],
)
def test_invalid_speculative_config_is_a_one_line_error(
    tables: Any, change: dict[str, Any], words: str
) -> None:
    config = {"method": "eagle", "num_speculative_tokens": 3, "acceptance_rate": 0.7} | change
    config = {key: value for key, value in config.items() if value is not None}
    with pytest.raises(InputError, match=words) as caught:
        kvsim.simulate(made(tables, config), [Request("a", 0, 10, 4)])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"allocator": [{"kind": "doubling"}]}, "allocator.kind"),
        ({"allocator": [{"kind": "paged"}, {"kind": "radix"}]}, "allocator.kind"),
        ({"allocator": [{"kind": "page-groups"}]}, "allocator.kind"),
        ({"allocator": [{"kind": "paged", "sharing": "copy-on-write"}]}, "allocator.sharing"),
        ({"allocator": [{"kind": "paged", "host_cache_gib": 1.0}]}, "allocator.host_cache_gib"),
        ({"scheduler": {"kind": "sglang"}}, "scheduler.kind"),
        ({"scheduler": {"kind": "orca"}}, "scheduler.kind"),
        ({"scheduler": {"kind": "continuous", "semantics": "vllm-0.11"}}, "scheduler.semantics"),
        ({"scheduler": {"kind": "continuous", "preemption_mode": "swap"}}, "preemption_mode"),
        ({"memory": {"kv_cache_tokens": 4096, "drafter": "mtp"}}, "memory.drafter"),
    ],
)
def test_scheduler_without_drafts_refuses_before_the_run(
    tables: Any, parts: dict[str, Any], words: str
) -> None:
    config = {"method": "eagle", "num_speculative_tokens": 3, "acceptance_rate": 0.7}
    with pytest.raises(InputError, match=words):
        Simulation(Scenario.from_table(made(tables, config, **parts)), [Request("a", 0, 10, 4)])


def test_disable_lookahead_block_hashes_is_refused_for_vllm_0_27(tables: Any) -> None:
    scheduler = {"kind": "continuous", "semantics": "vllm-0.27"}
    with pytest.raises(InputError, match="disable_lookahead_block_hashes"):
        kvsim.simulate(made(tables, METHODS[1], scheduler=scheduler), [Request("a", 0, 10, 4)])


def test_prefill_checkpoint_alignment_is_refused_if_hits_lose_a_block(tables: Any) -> None:
    config = METHODS[1]
    allocator = [{"kind": "paged", "prefill_checkpoint_alignment": 16}]
    made_of = {"model": {**HYBRIDS["states"], "max_model_len": 1024}, "allocator": allocator}
    with pytest.raises(InputError, match="prefill_checkpoint_alignment"):
        kvsim.simulate(made(tables, config, **made_of), [Request("a", 0, 10, 4)])


def test_async_ngram_drafts_are_refused_before_vllm_033(tables: Any) -> None:
    scheduler = {"kind": "continuous", "async_scheduling": True}
    requests = [Request("a", 0, 10, 4)]
    kvsim.simulate(made(tables, METHODS[4], scheduler=scheduler), requests)
    older = made(tables, METHODS[4], scheduler={**scheduler, "semantics": "vllm-0.27"})
    with pytest.raises(InputError, match="async_scheduling"):
        kvsim.simulate(older, requests)


def test_drafter_inputs_count_against_max_num_batched_tokens(tables: Any) -> None:
    config = {"method": "draft_model", "model": "qwen2.5-0.5b", "num_speculative_tokens": 2}
    config["acceptance_rate"] = 0.5

    def served(prompt_tokens: int, **scheduler: Any) -> int:
        scheduler = {"kind": "continuous", **scheduler}
        requests = [Request("a", 0, prompt_tokens, 1)]
        (run,) = kvsim.simulate(made(tables, config, scheduler=scheduler), requests).runs
        return int(run.summary["requests"]["finished"])

    with pytest.raises(InputError, match=r"max_num_batched_tokens.*got 1; limit at least 2"):
        served(10, max_num_batched_tokens=1)
    assert served(10, max_num_batched_tokens=2) == 1
    whole = {"max_num_batched_tokens": 64, "enable_chunked_prefill": False}
    assert [served(tokens, **whole) for tokens in (63, 64)] == [1, 0]


def test_block_drafter_queries_count_against_the_token_budget(tables: Any) -> None:
    """7 drafts are 8 queries of each sequence; with 24 tokens a step, 3 sequences run."""
    requests = [Request(f"r{i}", 0, 8, 60) for i in range(6)]

    def run(most_tokens: int, **scheduler: Any) -> Any:
        scheduler = {"kind": "continuous", "max_num_batched_tokens": most_tokens, **scheduler}
        return kvsim.simulate(made(tables, METHODS[5], scheduler=scheduler), requests).runs[0]

    def most_at_once(most_tokens: int) -> int:
        rows = run(most_tokens).requests
        starts, ends = rows.scheduled_ps, rows.finish_ps
        return max(int(((starts <= now) & (ends > now)).sum()) for now in starts)

    most = {tokens: most_at_once(tokens) for tokens in (15, 16, 24, 512)}
    assert most == {15: 1, 16: 2, 24: 3, 512: 6}
    with pytest.raises(InputError, match=r"max_num_batched_tokens.*got 8; limit at least 9"):
        run(8)
    with pytest.raises(InputError, match=r"as vLLM 0\.33 has it"):
        run(64, semantics="vllm-0.27")
    with pytest.raises(InputError, match="disable_lookahead_block_hashes changes nothing"):
        kvsim.simulate(
            made(tables, {**METHODS[5], "disable_lookahead_block_hashes": True}), requests
        )
    without = {key: value for key, value in METHODS[5].items() if key != "hf_config"}
    with pytest.raises(InputError, match="dflash needs model or hf_config"):
        kvsim.simulate(made(tables, without), requests)


def test_block_drafter_takes_one_pass_per_step() -> None:
    class Written:
        """A step-time form that records the shapes of its calls."""

        def __init__(self) -> None:
            self.shapes: list[StepShape] = []

        def step_ps(self, shape: StepShape) -> int:
            self.shapes.append(shape)
            return 5 * shape.num_tokens

    drafter: Any = Written()
    target = StepShape((Chunk(30, 10),), 2, 100, num_drafts=14)
    assert BlockPass(drafter, 8).draft_ps(target) == 5 * 3 * 8
    assert drafter.shapes == [StepShape((), 3, 100 + 40 + 24, num_drafts=21)]
    assert BlockPass(drafter, 8).draft_ps(StepShape((), 0, 0)) == 0
    before = len(drafter.shapes)
    DraftingPasses(drafter, 7).draft_ps(target)
    assert [shape.num_tokens for shape in drafter.shapes[before:]] == [30 + 2 + 14, 3]


def test_block_drafter_hashes_have_no_lookahead_tokens(tables: Any) -> None:
    """Its keys follow from the target's states alone. EAGLE's follow from the next token too, so
    that the last of four shared blocks, which other tokens follow, is not hit.
    """
    config = {**METHODS[5], "num_speculative_tokens": 2}
    requests = [Request(f"r{i}", 10**12 * i, 65, 4, prompt_runs=((1 << 40, 64), (i << 20, 1)))
                for i in range(3)]  # fmt: skip
    hits = {}
    for name, drafts in {"dflash": config, "eagle": METHODS[0]}.items():
        (run,) = kvsim.simulate(made(tables, drafts), requests).runs
        hits[name] = int(run.requests.cached_tokens.iloc[1:].sum())
    assert hits == {"dflash": 128, "eagle": 96}


def test_cost_of_speculation_is_reported(tables: Any) -> None:
    config = {"method": "eagle", "num_speculative_tokens": 2, "acceptance_rate": 0.9}
    requests = [Request(f"r{i}", 10**10 * i, 50, 30) for i in range(6)]
    simulation = Simulation(Scenario.from_table(made(tables, config)), requests)
    (cost,) = speculation_costs(simulation)
    drafter = simulation.resolved()["provenance"]["drafter"]
    assert drafter["bytes_per_token"] * 12 == cost.plain.bytes_per_token
    assert cost.drafted.bytes_per_token - cost.plain.bytes_per_token == drafter["bytes_per_token"]
    assert drafter["weights_bytes"] == cost.drafter_weights_bytes > 0
    assert drafter["slots"] == 4
    assert cost.plain.speculation is None
    assert cost.drafted.steps < cost.plain.steps
    said = sentence(cost)
    for words in ("eagle with 2 drafts costs", "more KV per token", "held for drafts", "it buys"):
        assert words in said
    same = cost.plain._replace(speculation=cost.drafted.speculation)
    lookup = cost._replace(
        method="ngram", drafter_weights_bytes=0, state_bytes=1 << 20, drafted=same
    )
    assert "costs neither weights nor KV of its own, and 1.00 MiB more of rec" in sentence(lookup)
    with pytest.raises(InputError, match="drafts nothing"):
        speculation_costs(Simulation(Scenario.from_table(made(tables, None)), requests))


def test_prompt_is_refused_if_a_step_lacks_tokens_for_a_state_block_and_drafter_inputs() -> None:
    def tables(most_tokens: int) -> dict[str, Any]:
        return {
            "model": {"name": "jamba-v0.1", "max_model_len": 1024},
            "device": {"name": "a100-80gb"},
            "memory": {"kv_cache_tokens": 4800},
            "allocator": [{"kind": "paged"}],
            "scheduler": {"kind": "continuous", "max_num_batched_tokens": most_tokens},
            "step_time": PLAIN_STEP,
            "speculative_config": METHODS[3],
        }

    requests = [Request("a", 0, 300, 4)]
    (run,) = kvsim.simulate(tables(96), [*requests, Request("short", 0, 90, 4)]).runs
    refused = run.requests.set_index("id").reason
    assert "whole blocks of states" in refused["a"]
    assert "97 tokens (max_num_batched_tokens), limit 96" in refused["a"]
    assert run.summary["requests"] == {"submitted": 2, "finished": 1, "rejected": 1}
    for most_tokens in (95, 97):  # within the block, and all of it
        (run,) = kvsim.simulate(tables(most_tokens), requests).runs
        assert run.summary["requests"]["finished"] == 1


SUPPORT = Path(__file__).parents[2] / "support"
HYBRIDS: dict[str, dict[str, Any]] = {
    "windows": {"name": "gpt-oss-20b"},
    "states": {"hf_config": str(SUPPORT / "tiny_hybrid.json")},
    "blocks of two sizes": {"hf_config": str(SUPPORT / "tiny_sizes.json")},
}
KEPT: list[dict[str, Any]] = [
    {},
    {"prefix_cache_retention_interval": "none"},
    {"enable_prefix_caching": False},
]


@pytest.mark.parametrize(
    ("model", "config", "scheduler"),
    pairs(
        list(HYBRIDS),
        [*METHODS[:3], METHODS[4]],
        SCHEDULERS,
        kind=named,
        allowed=lambda model, config, scheduler: suits(config, scheduler),
    ),
)
@settings(max_examples=3, deadline=None)
@given(requests=streams(), kept=st.sampled_from(KEPT))
@unless_thrashing
def test_ledger_with_drafts_is_consistent_for_windows_and_states(
    model: str,
    config: dict[str, Any],
    scheduler: dict[str, Any],
    requests: list[Request],
    kept: dict[str, Any],
) -> None:
    scenario = Scenario.from_table({
        "model": {**HYBRIDS[model], "max_model_len": 1024},
        "device": {"name": "a100-80gb"},
        "memory": {"kv_cache_tokens": 4800},
        "allocator": [{"kind": "paged", **kept}],
        "scheduler": scheduler,
        "step_time": {"kind": "linear", "base_us": 8000, "prefill_token_us": 40},
        "speculative_config": config,
    })  # fmt: skip
    simulation = Simulation(scenario, requests)
    run = simulation.run(scenario.allocator[0], "audited", observer=Auditor())
    assert sum(run.summary["requests"].values()) == 2 * len(requests)


@pytest.mark.parametrize(("model", "told"), [("llama-3.1-8b", True), ("deepseek-v3", False)])
def test_mtp_for_a_model_without_an_mtp_layer_is_refused(model: str, told: bool) -> None:
    drafts = {"method": "mtp", "num_speculative_tokens": 1, "acceptance_rate": 0.7}
    table = {
        "model": {"name": model, "max_model_len": 4096},
        "device": {"name": "h200"},
        "memory": {"num_gpu_blocks": 400},
        "allocator": "paged",
        "step_time": {"kind": "linear", "base_us": 9000},
        "speculative_config": drafts,
    }
    simulation = Simulation(Scenario.from_table(table), [Request("a", 0, 9, 1)])
    said = [text for _, text in simulation.known_before]
    assert any("has no MTP layer" in text for text in said) == told
