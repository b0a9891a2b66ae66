"""Tables that users of vLLM reported for models with recurrent states, by version of the engine.

vllm-project/vllm #45238 (Qwen3.5-4B, blocks of 528), #54360 (35B-A3B in fp8 with MTP, blocks of
2,144) and #52244 (35B-A3B with MTP, blocks of 1,072, matched in units of 67). The figures
of 0.22.0, 0.27.1 and 0.33.0 were derived again with their own schedulers.
"""

from typing import Any

import pytest

import kvsim
from evidence.schedule.engines import parse_case
from evidence.schedule.replay import simulate_rows
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.options import Paged
from kvsim.plumbing.errors import InputError
from kvsim.vllm.versions import scheduled_as


def admitted(
    engine: dict[str, Any], requests: list[tuple[str, list[tuple[str, int]]]]
) -> list[int]:
    """Tokens that each request hit, one after the other had left; of 3 + 1 groups of layers."""
    block = engine["block_size"]
    table = {
        "name": "table",
        "cost": {"a": 1000, "b": 1, "c": 1},
        "accept": [3, 1, 0, 2],
        "engine": {
            "num_gpu_blocks": 400,
            "max_num_seqs": 8,
            "max_model_len": 32768,
            "kv_groups": [
                {"kind": "recurrent", "groups": 3, "block_size": block},
                {"kind": "full", "block_size": block},
            ],
            "scheduler_block_size": block,
            "prefix_match_unit": block,
            "hit_alignment": block,
            "max_in_flight_tokens": engine["max_num_batched_tokens"],
            "mamba_cache_mode": "align",
            **engine,
        },
        "requests": [
            {"id": name, "arrival": index * 10**9, "prompt": prompt, "out": 4}
            for index, (name, prompt) in enumerate(requests)
        ],
    }
    rows = simulate_rows(parse_case(table, "table"))
    hits = {name: tokens for row in rows for name, tokens, _ in row["admitted"]}
    return [hits[name] for name, _ in requests]


@pytest.mark.parametrize(
    ("semantics", "retention", "hitting"),
    [
        ("vllm-0.22", None, (52, 0)),
        ("vllm-0.27", None, (52, 40)),
        ("vllm-0.33", None, (52, 40)),
        ("vllm-0.33", 0, (40, 40)),
    ],
)
def test_hits_of_prefixes_that_end_before_the_last_cached_state(
    semantics: str, retention: int | None, hitting: tuple[int, int]
) -> None:
    """#45238: 64 prompts of 2,200 tokens on 12 prefixes of 1,600 tokens, or of 1,500: how many hit.
    The last state of a prompt lies at 2,112, that before it at 1,584; 2,048 tokens a step.
    """
    engine = {
        "block_size": 528,
        "max_num_batched_tokens": 2048,
        "semantics": semantics,
        "prefix_cache_retention_interval": retention,
    }
    found = []
    for shared, own in (1600, 600), (1500, 700):
        prompts = [(f"r{i}", [(f"s{i % 12}", shared), (f"u{i}", own)]) for i in range(64)]
        found.append(sum(hit > 0 for hit in admitted(engine, prompts)))
    assert tuple(found) == hitting


# Before 0.33 the hash of a block covers no token behind it, and a hit loses its last block.
AS_SERVED = {"semantics": "vllm-0.33", "prefix_cache_retention_interval": 0}
BEFORE = {"semantics": "vllm-0.27", "prefix_cache_retention_interval": None}


def resent(engine: dict[str, Any], lengths: list[int], *, hashes_ahead: bool) -> list[int]:
    """What a prompt of each length hits the second time, with MTP and three drafts."""
    block = engine["block_size"]
    drafting = {
        "kv_groups": [
            {"kind": "recurrent", "groups": 3, "block_size": block, "speculative_blocks": 3},
            {"kind": "full", "block_size": block, "drops": not hashes_ahead},
        ],
        "max_num_batched_tokens": 8192,
        "speculative": {
            "method": "mtp",
            "tokens": 3,
            "lookahead_slots": 3,
            "hash_lookahead": int(hashes_ahead),
            "prefill_lookahead": 1,
            "drop_last_block": not hashes_ahead,
            "draft_input_slots": 0,
        },
    }
    prompts = [(f"{n}.{k}", [(f"s{n}", n)]) for n in lengths for k in range(2)]
    return admitted(drafting | engine, prompts)[1::2]


@pytest.mark.parametrize(
    ("version", "hashes_ahead", "hits"),
    [
        (BEFORE, False, [0, 4288, 8576, 12864, 15008]),
        (AS_SERVED, False, [0, 4288, 8576, 12864, 15008]),
        (AS_SERVED, True, [2144, 6432, 10720, 15008, 17152]),
    ],
)
def test_mtp_hits_lose_the_last_block_unless_hashes_look_ahead(
    version: dict[str, Any], hashes_ahead: bool, hits: list[int]
) -> None:
    """#54360: prompts sent twice; with hashes that look ahead no block is lost."""
    lengths = [3784, 7542, 11292, 15019, 18770]
    assert resent({"block_size": 2144, **version}, lengths, hashes_ahead=hashes_ahead) == hits


@pytest.mark.parametrize(
    ("version", "hashes_ahead", "hits"),
    [
        (BEFORE, False, [0, 0, 0, 1072, 2144]),
        (AS_SERVED, False, [1005, 1876, 2077, 2881, 3417]),
        (AS_SERVED, True, [1005, 1943, 2077, 2948, 3484]),
    ],
)
def test_mtp_hits_end_at_multiples_of_the_match_unit(
    version: dict[str, Any], hashes_ahead: bool, hits: list[int]
) -> None:
    """#52244: the same in units of 67 tokens within blocks of 1,072."""
    engine = {"block_size": 1072, "prefix_match_unit": 67, "hit_alignment": 67, **version}
    assert resent(engine, [1072, 2000, 2144, 3000, 3500], hashes_ahead=hashes_ahead) == hits


FULL = [{"kind": "full", "block_size": 32}, {"kind": "full", "block_size": 64}]
WINDOWS = {"kind": "sliding", "block_size": 32, "window_tokens": 40}
STATES = {"kind": "recurrent", "block_size": 32}


@pytest.mark.parametrize("semantics", ["vllm-0.22", "vllm-0.27", "vllm-0.33"])
@pytest.mark.parametrize(
    ("engine", "where", "known_to"),
    [
        (
            {"kv_groups": [*FULL, WINDOWS], "scheduler_block_size": 64, "hit_alignment": 64},
            "allocator.enable_prefix_caching",
            {"vllm-0.33"},
        ),
        (
            {"kv_groups": [FULL[0], WINDOWS, STATES], "prefix_match_unit": 16},
            "allocator.prefix_match_unit",
            {"vllm-0.33"},
        ),
        ({"watermark": 0.1}, "allocator.watermark", {"vllm-0.27", "vllm-0.33"}),
        (
            {"kv_groups": [FULL[0], STATES], "max_num_batched_tokens": 31},
            "scheduler.max_num_batched_tokens",
            {"vllm-0.27", "vllm-0.33"},
        ),
        (
            {"kv_groups": [FULL[0], STATES], "long_prefill_token_threshold": 31},
            "scheduler.long_prefill_token_threshold",
            {"vllm-0.27", "vllm-0.33"},
        ),
    ],
    ids=[
        "two-kinds-of-full-attention",
        "units-beside-windows",
        "watermark",
        "steps-below-a-block",
        "chunks-below-a-block",
    ],
)
def test_models_that_a_vllm_version_cannot_serve_are_refused(
    semantics: str, engine: dict[str, Any], where: str, known_to: set[str]
) -> None:
    served = {"block_size": 32, "max_num_batched_tokens": 64, "semantics": semantics, **engine}
    requests = [("a", [("x", 40)]), ("b", [("x", 50)])]
    if semantics in known_to:
        assert len(admitted(served, requests)) == 2
        return
    with pytest.raises(InputError) as refused:
        admitted(served, requests)
    assert refused.value.where == where


def test_resolved_options_show_prefix_cache_disabled_by_the_version() -> None:
    """vLLM 0.11 caches no states, so a prefix cache that is on by default is turned off, with a
    note.
    """
    scenario = {
        "model": {"name": "granite-4.0-h-tiny", "max_model_len": 512},
        "device": {"name": "a100-40gb"},
        "memory": {"kv_cache_bytes": 1 << 30},
        "allocator": [{"kind": "paged"}, {"kind": "paged", "enable_prefix_caching": False}],
        "scheduler": {"kind": "continuous", "semantics": "vllm-0.11"},
        "workload": {
            "kind": "synthetic", "num_requests": 3,
            "arrivals": {"kind": "at-once"},
            "prompt": {"kind": "fixed", "tokens": 60}, "output": {"kind": "fixed", "tokens": 20},
        },
    }  # fmt: skip
    result = kvsim.simulate(scenario)
    resolved = result.scenario["allocator"]
    assert [table["enable_prefix_caching"] for table in resolved] == [False, False]
    again = kvsim.simulate(result.scenario)
    assert [run.label for run in again.runs] == [run.label for run in result.runs]
    numbers = [[run.summary[key] for run in each.runs] for each in (result, again)
               for key in ("makespan_s", "memory", "prefix_cache")]  # fmt: skip
    assert numbers[:3] == numbers[3:]
    asked = {**scenario, "allocator": [{"kind": "paged", "enable_prefix_caching": True}]}
    with pytest.raises(InputError, match="no prefix of it is kept; leave the key out"):
        kvsim.simulate(asked)


@pytest.mark.parametrize(
    ("semantics", "caches"), [("vllm-0.22", False), ("vllm-0.27", False), ("vllm-0.33", True)]
)
def test_recurrent_states_are_cached_by_default_since_vllm_0_28(
    semantics: str, caches: bool
) -> None:
    layout = KVLayout((KVGroup("full", 1, 64), KVGroup("recurrent", 3, 0, state_bytes=3 * 1024)))
    memory = MemorySpec(1 << 20, layout, 512, 1, rules=scheduled_as(semantics).blocks)
    assert Paged().resolved(memory).enable_prefix_caching == caches
    asked = Paged(enable_prefix_caching=True)
    assert asked.resolved(memory).enable_prefix_caching
