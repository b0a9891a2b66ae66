"""Several groups of layers on one pool: grouping, closed forms, the real engine's schedules."""

from pathlib import Path
from typing import Any

import pytest

import kvsim
from evidence.schedule.verdict import validate_case
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.options import Paged
from kvsim.model import ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.vllm.grouping import group_layers, is_uniform
from kvsim.vllm.versions import V0_11

SCHEDULES = Path(__file__).parent / "schedules"


def layout_of(name: str) -> KVLayout:
    options = ModelOptions(name=name)
    return options.layout(options.build(Path()))


def run(model: str, requests: list[Request], /, **more: Any) -> Any:
    tables = {
        "model": {"name": model, "max_model_len": 8192},
        "device": {"name": "h100-80gb"},
        "memory": {"kv_cache_tokens": 8192},
        "allocator": [{"kind": "paged"}],
        "scheduler": {"kind": "continuous", "max_num_batched_tokens": 512},
        "step_time": {"kind": "linear", "base_us": 1000},
        **more,
    }
    (found,) = kvsim.simulate(tables, requests).runs
    return found


# --- grouping ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "groups", "group_size", "padding"),
    [
        ("gemma-3-27b", 7, 10, 8),  # 10 full + 52 sliding layers
        ("gemma-3-12b", 6, 8, 0),
        ("gemma-2-9b", 2, 21, 0),
        ("gpt-oss-20b", 2, 12, 0),
        ("mistral-7b", 1, 32, 0),
    ],
)
def test_kv_cache_groups_have_as_many_layers_as_the_rarest_kind(
    model: str, groups: int, group_size: int, padding: int
) -> None:
    layout = layout_of(model)
    grouping = group_layers(layout, 16)
    assert len(grouping.groups) == groups
    assert grouping.group_layers == group_size
    assert grouping.padding_layers == padding
    assert sum(group.slot_bytes for group in grouping.groups) == layout.bytes_per_token


def test_blocks_grow_until_a_recurrent_state_fits() -> None:
    # vLLM logs "Setting attention block size to 544 tokens" for this model.
    grouping = group_layers(layout_of("qwen3-next-80b-a3b"), 16)
    assert grouping.block_size == 544
    state = max(group.state_bytes for group in grouping.groups)
    assert 528 * grouping.slot_bytes < state <= 544 * grouping.slot_bytes


def test_layer_kind_slightly_above_the_rarest_stays_one_group() -> None:
    layout = KVLayout((KVGroup("full", 12, 12), KVGroup("sliding", 13, 13, 8)))
    assert [group.layers for group in group_layers(layout, 16).groups] == [12, 13]
    older = group_layers(layout, 16, commonest_sizes_groups=False)
    assert [group.layers for group in older.groups] == [12, 7, 6]


def test_models_that_keep_every_token_have_one_table() -> None:
    assert is_uniform(layout_of("deepseek-v3"))
    assert not is_uniform(layout_of("gemma-3-1b"))
    assert is_uniform(layout_of("gemma-3-1b"), windows=False)


# --- the ledger -------------------------------------------------------------------------------


def test_sliding_window_keeps_exactly_its_blocks() -> None:
    """One long request on gpt-oss-20b (12 full and 12 sliding layers, W = 128): at its end full
    attention holds all F slots, the window the blocks from the one with slot F - W on.
    """
    prompt, output, window, block = 2000, 500, 128, 16
    found = run("gpt-oss-20b", [Request("r", 0, prompt, output)], max_steps=1)
    layer_bytes = 12 * 2048
    final = prompt + output - 1
    last = found.memory[found.memory.steps == 1].iloc[-1]
    computed = final - 1  # before the last step
    first = (computed - window + 1) // block * block
    assert last.used_end_bytes == layer_bytes * (final + final - first)
    held = -(-final // block) * block
    assert last.overprovisioned_end_bytes == 2 * layer_bytes * (held - final)
    assert last.rounding_bytes == 0


def test_local_attention_holds_only_blocks_of_the_current_chunk() -> None:
    """One long request on llama-4-scout (12 full and 36 local layers, chunks of 8,192 tokens): at
    its end the local layers hold the blocks from the start of the last chunk on. One table keeps
    all of them, and so does vLLM 0.13.
    """
    prompt, output, chunk, block = 17_000, 300, 8192, 16
    given: dict[str, Any] = {
        "model": {"name": "llama-4-scout", "max_model_len": 65_536},
        "memory": {"kv_cache_tokens": 40_000},
    }
    requests = [Request("r", 0, prompt, output)]
    found = run("llama-4-scout", requests, max_steps=1, **given)
    last = found.memory[found.memory.steps == 1].iloc[-1]
    final, slot = prompt + output - 1, 12 * 4096
    first = (final - 1) // chunk * chunk
    assert last.used_end_bytes == slot * (final + 3 * (final - first))
    held = -(-final // block) * block
    assert last.overprovisioned_end_bytes == 4 * slot * (held - final)
    whole = {"kind": "paged", "disable_hybrid_kv_cache_manager": True}
    older = {"kv_cache_tokens": 40_000, "engine_version": "0.13"}
    for other in given | {"allocator": [whole]}, given | {"memory": older}:
        kept = run("llama-4-scout", requests, **other)
        assert kept.memory.used_end_bytes.max() == 4 * slot * final


def test_padding_layers_of_groups_count_as_rounding() -> None:
    """Gemma-3-27B: in blocks of a group of 9 or 8 layers, 1 or 2 layers are padding."""
    prompt = 320
    found = run("gemma-3-27b", [Request("r", 0, prompt, 1)])
    first = found.memory[found.memory.steps == 1].iloc[0]
    slot = 8192
    assert first.used_bytes == prompt * 62 * slot
    assert first.rounding_bytes == prompt * 8 * slot


def test_recurrent_state_takes_constant_bytes_during_decoding() -> None:
    layout = layout_of("jamba-v0.1")
    state = sum(group.state_bytes for group in layout.groups)
    plain = {"kind": "paged", "enable_prefix_caching": False}
    found = run("jamba-v0.1", [Request("r", 0, 100, 300)], max_steps=1, allocator=[plain])
    rows = found.memory[found.memory.steps == 1]
    slots = rows.used_bytes - state
    assert list(slots) == [layout.bytes_per_token * n for n in range(100, 400)]
    assert rows.rounding_bytes.nunique() == 1


def test_window_layers_hold_every_token_without_the_hybrid_manager() -> None:
    request = [Request("r", 0, 2000, 500)]
    plain = {"kind": "paged", "disable_hybrid_kv_cache_manager": True}
    whole = run("gpt-oss-20b", request, allocator=[plain])
    assert whole.summary["memory"]["peak_allocated"] == 2512 / 8192  # 157 blocks of 16
    # What half of the layers has left behind is not used, with tables of their own or without.
    same = {"kv_cache_bytes": 8192 * layout_of("gpt-oss-20b").bytes_per_token}
    apart = run("gpt-oss-20b", request, memory=same).summary["memory"]
    assert whole.summary["memory"]["peak_used"] <= apart["peak_used"] < 0.6 * 2499 / 8192
    assert apart["peak_allocated"] < 0.6 * 2512 / 8192


def test_request_that_holds_more_blocks_at_once_than_the_pool_is_refused() -> None:
    layout = KVLayout((KVGroup("full", 1, 1), KVGroup("sliding", 3, 3, 40)))
    memory = MemorySpec(8 * 40, layout, 1024, 1, max_in_flight_tokens=64)
    allocator = Paged(block_size=8).build(memory)
    # Full attention: n / 8 blocks; three windows: (40 - 1 + 64) / 8 rounded up, and one more.
    assert allocator.refusal(Request("r", 0, 20, 5)) is None
    refusal = allocator.refusal(Request("r", 0, 200, 5))
    assert refusal is not None
    assert (refusal.value, refusal.limit) == (26 + 3 * 14, 39)


def test_prefix_cache_is_refused_if_recurrent_states_are_not_cached() -> None:
    with pytest.raises(InputError, match="enable_prefix_caching"):
        run(
            "jamba-v0.1",
            [Request("r", 0, 8, 8)],
            allocator=[{"kind": "paged", "enable_prefix_caching": True}],
            scheduler={"kind": "continuous", "semantics": "vllm-0.11"},
        )


@pytest.mark.parametrize(
    ("model", "asked", "semantics", "said"),
    [
        ("llama-3.1-8b", {"prefix_match_unit": 8}, "vllm-0.33", "no recurrent state is kept"),
        ("gemma-3-1b", {"prefix_match_unit": 7}, "vllm-0.33", "not a divisor of the block size"),
        ("jamba-v0.1", {"prefix_match_unit": 8}, "vllm-0.11", "not of the scheduler's version"),
        ("jamba-v0.1", {"prefix_match_unit": 7}, "vllm-0.33", "not a divisor of the block size"),
    ],
)
def test_prefix_match_unit_is_refused_if_hits_end_at_blocks_only(
    model: str, asked: dict[str, Any], semantics: str, said: str
) -> None:
    more: dict[str, Any] = {
        "allocator": [{"kind": "paged", **asked}],
        "scheduler": {"kind": "continuous", "semantics": semantics},
    }
    with pytest.raises(InputError, match=said):
        run(model, [Request("r", 0, 8, 8)], **more)


def test_resent_prompt_hits_up_to_its_last_match_unit_inside_a_block() -> None:
    """Qwen3-Next in blocks of 544 tokens: a prompt of 240, three times, one after another."""
    requests = [Request(f"r{i}", i * 10**12, 240, 2, prompt_runs=((0, 240),)) for i in range(3)]
    hits = {}
    for unit in (None, 16, 32):
        table = {"kind": "paged"} if unit is None else {"kind": "paged", "prefix_match_unit": unit}
        found = run("qwen3-next-80b-a3b", requests, allocator=[table])
        hits[unit] = list(found.requests.sort_values("id").cached_tokens)
    assert hits == {None: [0, 0, 0], 16: [0, 224, 224], 32: [0, 224, 224]}


def test_request_without_room_for_its_copied_block_is_rejected() -> None:
    """Qwen3-Next in blocks of 544 tokens. A prompt of 600 takes two in full attention
    and up to two in each of three groups of states; sent again it hits inside the second block,
    which it needs beside a copy, in each group.
    """
    requests = [Request(f"r{i}", i * 10**12, 600, 2, prompt_runs=((0, 600),)) for i in range(2)]
    found = {}
    for unit in (None, 32):
        table = {"kind": "paged"} if unit is None else {"kind": "paged", "prefix_match_unit": unit}
        for tokens in (5200, 7200):  # 8 and 12 blocks
            given = {"kv_cache_bytes": tokens * layout_of("qwen3-next-80b-a3b").bytes_per_token}
            run_ = run("qwen3-next-80b-a3b", requests, allocator=[table], memory=given)
            found[unit, tokens] = run_.summary["requests"]["rejected"]
    assert found == {(None, 5200): 0, (None, 7200): 0, (32, 5200): 2, (32, 7200): 0}


def test_retention_interval_without_effect_is_refused() -> None:
    asked = [{"kind": "paged", "prefix_cache_retention_interval": 1024}]
    with pytest.raises(InputError, match="no layer has a window"):
        run("llama-3.1-8b", [Request("r", 0, 8, 8)], allocator=asked)
    with pytest.raises(InputError, match=r"vllm-0\.11 does not know it"):
        run(
            "gemma-3-1b",
            [Request("r", 0, 8, 8)],
            allocator=asked,
            scheduler={"kind": "continuous", "semantics": "vllm-0.11"},
        )
    odd = [{"kind": "paged", "prefix_cache_retention_interval": 1000}]
    with pytest.raises(InputError, match="multiple"):
        run("gemma-3-1b", [Request("r", 0, 8, 8)], allocator=odd)


@pytest.mark.parametrize(
    ("groups", "asked", "said"),
    [
        ((KVGroup("full", 1, 8), KVGroup("sliding", 1, 4, 40)), {}, "unequally many bytes"),
        (
            (KVGroup("full", 1, 8), KVGroup("sliding", 1, 8, 40), KVGroup("sliding", 1, 8, 80)),
            {},
            "does not start with 3 kinds",
        ),
        ((KVGroup("sliding", 1, 8, 40), KVGroup("sliding", 1, 8, 80)), {}, "with 2 kinds"),
        ((KVGroup("full", 1, 8),), {"watermark": 0.1}, "allocator.watermark"),
    ],
)
def test_options_newer_than_vllm_0_11_are_refused(
    groups: tuple[KVGroup, ...], asked: dict[str, Any], said: str
) -> None:
    later = MemorySpec(1 << 20, KVLayout(groups), 1024, 1)
    Paged(**asked).build(later)
    with pytest.raises(InputError, match=said):
        Paged(**asked).build(later._replace(rules=V0_11.blocks))


@pytest.mark.parametrize(
    "groups",
    [
        (KVGroup("sliding", 1, 8, 40),),
        (KVGroup("sliding", 3, 24, 40), KVGroup("full", 1, 8)),
        (KVGroup("recurrent", 1, 0, state_bytes=64), KVGroup("full", 1, 8)),
    ],
)
def test_options_of_vllm_0_11_are_built(groups: tuple[KVGroup, ...]) -> None:
    memory = MemorySpec(1 << 20, KVLayout(groups), 1024, 1, rules=V0_11.blocks)
    assert Paged().build(memory).capacity_bytes == 1 << 20
    kinds = KVLayout((*groups, KVGroup("sliding", 1, 8, 80)))
    Paged(enable_prefix_caching=False).build(memory._replace(layout=kinds)).check()


def test_shared_prefix_caches_its_state_at_second_use_and_hits_at_third() -> None:
    """Gemma-3-1B, one request after the other: a prompt of 2,000 shared and 800 private tokens.
    Full attention caches the shared blocks at once, windows only at the point where prompts have
    diverged.
    """
    shared = (1 << 40, 2000)
    requests = [
        Request(f"r{i}", i * 10**12, 2800, 2, prompt_runs=(shared, (i << 20, 800)))
        for i in range(4)
    ]
    found = run("gemma-3-1b", requests)
    hits = found.requests.sort_values("id").cached_tokens
    assert list(hits) == [0, 0, 2000, 2000]
    dense = [{"kind": "paged", "prefix_cache_retention_interval": "none"}]
    found = run("gemma-3-1b", requests, allocator=dense)
    assert list(found.requests.sort_values("id").cached_tokens) == [0, 2000, 2000, 2000]


# --- the real engine --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    sorted(path for path in SCHEDULES.glob("*.json")),
    ids=lambda path: path.stem,
)
def test_schedules_of_vllm_are_equal_row_for_row(case: Path) -> None:
    """Recorded from the unmodified scheduler and hybrid block manager of vLLM 0.33.0."""
    answer = validate_case(case)
    assert answer.equal, answer.first_difference
    assert answer.steps > 200
