"""Captured steps without a GPU: rerun with the sizes, tables, tiles and padding of a graph."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.prove.captured import compare_captured
from evidence.prove.random_steps import BLOCK_SIZE, LONGEST, SLOTS, STORE_KINDS, random_steps
from evidence.prove.replay import replay
from evidence.prove.step import Step
from kvsim.backend.devices import device_of
from kvsim.backend.devices.staging import Staging
from kvsim.backend.shape import Shape
from kvsim.backend.step import TokenSpan
from kvsim.backend.stores.buffers import BufferStore
from kvsim.backend.stores.contiguous import ContiguousStore
from kvsim.backend.stores.paged import PagedStore, _FixedTables
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.graphs import DECODE_SIZES, MOST_CHUNKS, MOST_TOKENS, GraphSize
from kvsim.backend.transformer.runner import DecoderRunner
from kvsim.plumbing.errors import InvariantError

SHAPE = Shape(2, 32, 6, 2, 16, 48, 50)
DECODER = Decoder(SHAPE)


def runner_of(kind, **options):
    if kind == "paged":
        store = PagedStore(SHAPE, SLOTS // BLOCK_SIZE + 1, BLOCK_SIZE)
    else:
        store = ContiguousStore(SHAPE, SLOTS)
    return DecoderRunner(DECODER, store, "reference", **options)


def steps_of(kind, seed, **options):
    return [Step.from_record(record) for record in random_steps(kind, seed, **options)]


KINDS = [kind for kind in STORE_KINDS if kind != "buffers"]


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_replayed_graph_equals_kernel_by_kernel_launch(kind, staged):
    staging = Staging(device_of("cpu"), 1 << 16) if staged else None
    runner, eager = runner_of(kind, staging=staging), runner_of(kind)
    steps = steps_of(kind, 3)
    runner.with_graphs(LONGEST, ([len(span.tokens) for span in step.spans] for step in steps[::2]))
    for step in steps:
        logits = [one.step(step.spans, step.moves) for one in (runner, eager)]
        torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)
    assert runner.graphs.num_replayed + runner.graphs.num_eager == len(steps)
    assert runner.graphs.num_replayed > len(steps) / 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("broken", [False, True])
def test_plain_torch_kernels_are_exact_and_catch_a_broken_allocator(kind, broken):
    steps = steps_of(kind, 5, broken=broken)
    assert replay(steps, DECODER, runner_of(kind).store, "reference").ok != broken


def test_replay_on_wrong_blocks_fails(monkeypatch):
    records = list(random_steps("paged", 0))
    stores = [runner_of("paged").store for _ in range(2)]
    assert compare_captured(records, DECODER, *stores, "reference").ok
    monkeypatch.setattr(_FixedTables, "load", lambda *_: None)
    stores = [runner_of("paged").store for _ in range(2)]
    assert not compare_captured(records, DECODER, *stores, "reference").ok


@pytest.mark.parametrize("attention", ["gather", "sdpa", "reference"])
def test_a_window_hides_all_but_the_newest_tokens(attention):
    """In one layer, a query with a window of 5 equals one in a sequence of the last 5 tokens."""
    shape = Shape(1, 32, 6, 2, 16, 48, 50, window=5)
    decoder = Decoder(shape)
    plain = Decoder(replace(shape, window=None), decoder.weights)

    def store():
        return PagedStore(shape, 9, 4)

    tokens, blocks = list(range(12)), (3, 5, 1)
    whole = DecoderRunner(decoder, store(), attention)
    prompt = whole.step([TokenSpan("a", tokens[:11], 0, blocks)])
    decode, _ = whole.step(
        [TokenSpan("a", tokens[11:], 11, blocks), TokenSpan("other", [1], 0, (7,))]
    )[:, None]
    chunked = DecoderRunner(decoder, store(), attention)
    chunked.step([TokenSpan("a", tokens[:4], 0, blocks)])
    # Rotated by differences of positions alone, so that a shorter prompt has the same scores.
    for end, found in ((11, prompt), (12, decode)):
        alone = DecoderRunner(plain, store(), "gather")
        exact = alone.step([TokenSpan("b", tokens[end - 5 : end], 0, blocks)])
        torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        chunked.step([TokenSpan("a", tokens[4:11], 4, blocks)]), prompt, rtol=1e-4, atol=1e-5
    )


def test_captured_comparison_without_replays_has_no_error():
    records = list(random_steps("paged", 0))
    stores = [runner_of("paged").store for _ in range(2)]
    assert not compare_captured(records, DECODER, *stores, "gather").ok


@given(st.lists(st.integers(1, 200), min_size=1, max_size=300))
@settings(max_examples=300)
def test_graph_size_holds_its_step_and_is_reused(news):
    size = GraphSize.holding(SHAPE, news)
    decodes = news.count(1)
    chunks = len(news) - decodes
    if size is None:
        assert decodes > DECODE_SIZES[-1] or sum(news) > MOST_TOKENS or chunks > MOST_CHUNKS
        return
    assert size.tokens >= sum(news)
    assert size.decodes >= decodes
    assert size.chunks >= chunks
    per_tile = 128 // SHAPE.group
    assert size.tiles >= sum(-(-new // per_tile) for new in news if new > 1)
    assert GraphSize.holding(SHAPE, sorted(news)) == size


def test_null_block_in_a_captured_step_is_refused():
    runner = runner_of("paged").with_graphs(LONGEST, [[1]])
    with pytest.raises(InvariantError, match="nobody's"):
        runner.step([TokenSpan("a", [1], 0, blocks=[0])])


def test_store_without_fixed_addresses_runs_without_graphs():
    runner = DecoderRunner(DECODER, BufferStore(SHAPE), "reference").with_graphs(LONGEST, [[1]])
    assert runner.graphs is None
    assert (
        DecoderRunner(DECODER, runner_of("paged").store, "gather").with_graphs(9, [[1]]).graphs
        is None
    )


def test_context_beyond_graph_block_tables_runs_without_graphs():
    runner = runner_of("paged").with_graphs(8, [[1], [3]])
    runner.step([TokenSpan("a", [1, 2, 3], 0, blocks=[1])])
    runner.step([TokenSpan("a", range(40), 0, blocks=range(1, 11))])
    assert (runner.graphs.num_replayed, runner.graphs.num_eager) == (1, 1)


def test_staging_copies_small_arrays_together_and_large_ones_alone():
    staging = Staging(device_of("cpu"), 64)
    here, there = staging.reserve((3,), np.int32)
    here[...] = (1, 2, 3)
    small = staging.put(np.arange(4))
    large = staging.put(np.arange(100))
    assert large.tolist() == list(range(100))
    staging.send()
    assert there.tolist() == [1, 2, 3]
    assert small.tolist() == [0, 1, 2, 3]
    with pytest.raises(InvariantError, match="staging buffer"):
        staging.reserve((100,), np.int64)
    staging.clear()
    assert staging.put(np.arange(8)).data_ptr() == there.data_ptr()
