"""Hits by turn and the capacity of tiers, computed from request rows."""

from typing import Any

import pytest

import kvsim
from kvsim.report.turn_words import tier_room, turn_lines
from kvsim.results.turns import hits_by_turn, mean_conversation_tokens

TURNS = 3


@pytest.fixture
def chats(tables: Any) -> dict[str, Any]:
    """Six conversations of three turns, each 48 tokens longer than the last, without evictions."""
    return tables(
        allocator=[{"kind": "paged", "block_size": 16}],
        scheduler={"kind": "continuous"},
        workload={
            "kind": "sessions",
            "num_sessions": 6,
            "arrivals": {"kind": "constant", "rate_per_s": 1.0},
            "turns": {"kind": "fixed", "tokens": TURNS},
            "prompt": {"kind": "fixed", "tokens": 32},
            "output": {"kind": "fixed", "tokens": 16},
            "think": {"kind": "fixed", "seconds": 5.0},
        },
    )


def test_hits_by_turn_equal_sums_over_request_rows(chats: dict[str, Any]) -> None:
    result = kvsim.simulate(chats)
    (run,) = result.runs
    frame = run.requests
    found = hits_by_turn(frame)
    assert [each.turn for each in found] == [1, 2, 3]
    assert found == hits_by_turn(run.columns("requests"))
    frame["turn"] = frame.groupby("session").cumcount() + 1
    for each in found:
        rows = frame[frame["turn"] == each.turn]
        assert each.requests == len(rows) == 6
        assert each.prompt_tokens == rows["prompt_tokens"].sum()
        assert each.hit_tokens == rows["cached_tokens"].sum()
    assert found[0].share == 0 < found[1].share < found[2].share
    shares = ", ".join(f"{100 * each.share:.0f}" for each in found)
    assert [*turn_lines(result)] == [f"hits by turn: {shares} %"]
    assert mean_conversation_tokens(frame) == 3 * 48


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_tier_has_room_for_its_bytes_of_all_ranks(chats: dict[str, Any], ranks: int) -> None:
    chats["model"]["tensor_parallel_size"] = ranks
    result = kvsim.simulate(
        {**chats, "tier": [{"kind": "vllm-offloading", "kv_offloading_size": 1}]}
    )
    memory, (tier,) = result.runs[0].summary.memory, result.runs[0].summary.offloading.tiers  # type: ignore[union-attr]
    token_bytes = memory.capacity_bytes // memory.capacity_tokens * ranks
    (said,) = tier_room(result)
    assert f"has room for {tier.capacity_bytes // token_bytes:,} tokens: " in said
    assert said.endswith("conversations of 144 tokens, the mean at their end.")


def test_single_turn_conversations_have_no_rows_by_turn(chats: dict[str, Any]) -> None:
    chats["workload"]["turns"]["tokens"] = 1
    assert hits_by_turn(kvsim.simulate(chats).runs[0].requests) == []
