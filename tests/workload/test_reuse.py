"""Prefix reuse and block sizes, against hand-worked cases and an obviously right model."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.plumbing.errors import InputError
from kvsim.workload.blocks import rehash
from kvsim.workload.reuse import lru_token_hit_ratio, reuse
from kvsim.workload.statistics import arrival_statistics, length_statistics
from kvsim.workload.traces.record import Trace, TraceRow


def trace(rows: Sequence[tuple[int, tuple[int, ...]]], block: int = 4) -> Trace:
    return Trace(
        "t", "mooncake", [TraceRow(i, i, n, 1, ids) for i, (n, ids) in enumerate(rows, 1)], block
    )


def test_reuse_statistics_equal_a_hand_count() -> None:
    found = reuse(trace([(10, (1, 2, 3)), (10, (1, 2, 3)), (8, (1, 4)), (4, (2,))]))
    # hits: 0, min(12, 10) = 10, 4, and block 2 is known (the ids are chained): 4
    assert found.unique_blocks == 4
    assert found.block_references == 9
    assert found.ideal_token_hit_ratio == 18 / 32
    assert found.ideal_block_hit_ratio == 5 / 9


def test_lru_evicts_the_tail_of_a_prompt_before_its_head() -> None:
    rows = [(12, (1, 2, 3)), (12, (1, 2, 3))]
    assert lru_token_hit_ratio(trace(rows), 2) == 8 / 24  # 3 goes first, though it came last
    assert lru_token_hit_ratio(trace(rows), 0) == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_lru_hit_ratio_equals_a_naive_list_model(data: st.DataObject) -> None:
    prompts = data.draw(
        st.lists(st.lists(st.integers(0, 8), max_size=5, unique=True), min_size=1, max_size=20)
    )
    capacity = data.draw(st.integers(0, 10))
    kept: list[int] = []
    hits = 0
    for ids in prompts:
        count = next((i for i, block in enumerate(ids) if block not in kept), len(ids))
        hits += count * 4
        for block in reversed(ids):
            kept = [other for other in kept if other != block] + [block]
            kept = kept[max(len(kept) - capacity, 0) :]
    rows = [(len(ids) * 4 + 1, tuple(ids)) for ids in prompts]
    total = sum(tokens for tokens, _ in rows)
    assert lru_token_hit_ratio(trace(rows), capacity) == hits / total


def test_a_trace_without_hashes_has_no_reuse() -> None:
    with pytest.raises(InputError, match="no hash ids"):
        reuse(replace(trace([(4, (1,))]), hash_block_tokens=None))


def test_rehash_divides_ids_for_smaller_blocks_and_chains_for_larger() -> None:
    rows = trace([(10, (1, 2, 3)), (12, (1, 2, 5)), (10, (1, 2, 3))]).rows
    halves = [row.hash_ids for row in rehash(rows, 4, 2)]
    assert halves == [(2, 3, 4, 5, 6), (2, 3, 4, 5, 10, 11), (2, 3, 4, 5, 6)]
    doubles = [row.hash_ids for row in rehash(rows, 4, 8)]
    assert doubles == [(0, 1), (0, 2), (0, 1)]
    complete = [row.hash_ids for row in rehash(rows, 4, 8, complete_only=True)]
    assert complete == [(0,), (0,), (0,)]
    with pytest.raises(InputError, match="cannot be cut so"):
        rehash(rows, 4, 6)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), min_size=1, max_size=12))
def test_rehash_to_smaller_blocks_preserves_sharing(prompts: list[tuple[int, int]]) -> None:
    rows = []
    for index, (tokens, family) in enumerate(prompts):
        ids = tuple(family * 100 + k for k in range(-(-tokens // 8)))
        rows.append(TraceRow(index, index, tokens, 1, ids))
    before = Trace("t", "mooncake", rows, 8)
    after = Trace("t", "mooncake", rehash(rows, 8, 2), 2)
    capacity = 10**6
    assert lru_token_hit_ratio(after, capacity) >= 0
    back = Trace("t", "mooncake", rehash(after.rows, 2, 8), 8)
    families = [row.hash_ids for row in back.rows]
    assert reuse(back).block_references == reuse(before).block_references
    for one, same in zip(families, before.rows, strict=True):
        assert one is not None
        assert same.hash_ids is not None
        assert len(one) == len(same.hash_ids)


def test_regular_arrivals_have_a_variation_of_zero() -> None:
    rows = [TraceRow(i, i * 10**12, i + 1, 1) for i in range(101)]
    found = arrival_statistics(Trace("t", "azure", rows))
    assert found is not None
    assert found.duration_s == 100
    assert found.rate_per_s == 1.01
    assert found.peak_10s_per_s == 1.01
    assert found.gap_cv == 0
    assert length_statistics([row.prompt_tokens for row in rows]) == (51, 51, 91, 100, 101)
    assert arrival_statistics(Trace("t", "azure", rows[:1])) is None
