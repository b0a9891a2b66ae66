import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.cache.checks import small_shape, store_of
from evidence.prove import exactness
from evidence.prove.random_steps import STORE_KINDS, random_steps
from evidence.prove.recompute import RecomputeStore
from evidence.prove.replay import replay
from evidence.prove.step import Step
from kvsim.backend.step import Copy, TokenSpan
from kvsim.backend.stores.contiguous import ContiguousStore
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.runner import DecoderRunner
from kvsim.plumbing.errors import InputError

DECODERS = {
    dtype: Decoder(small_shape(dtype)) for dtype in ("float64", "float32", "bfloat16", "float16")
}


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", DECODERS)
@pytest.mark.parametrize("kind", STORE_KINDS)
def test_cached_logits_equal_recomputed_ones_for_every_store(kind, dtype):
    decoder = DECODERS[dtype]
    found = replay(random_steps(kind, 1), decoder, store_of(kind, decoder.shape, "cpu"))
    assert found.rows > 100
    assert found.ok, found


@settings(max_examples=20, deadline=None)
@given(kind=st.sampled_from(STORE_KINDS), seed=st.integers(0, 10**6))
def test_cached_logits_equal_recomputed_ones_over_random_schedules(kind, seed):
    decoder = DECODERS["float64"]
    steps = random_steps(kind, seed, steps=25)
    assert replay(steps, decoder, store_of(kind, decoder.shape, "cpu")).error <= 1e-13


def test_random_schedules_contain_copies_hits_and_forks():
    # Otherwise equality would prove little.
    steps = list(random_steps("paged", 0, steps=200))
    spans = [span for step in steps for span in step["seqs"]]
    assert any(step["copies"] for step in steps)  # copy on write
    assert any(span.get("prefix") and span["start"] for span in spans)  # prefix hits, forks
    assert any(len(span["tokens"]) > 1 and span["start"] for span in spans)  # chunks
    first_seen = set()
    again_from_the_start = False  # preemption
    for span in spans:
        again_from_the_start |= span["start"] == 0 and span["id"] in first_seen
        first_seen.add(span["id"])
    assert again_from_the_start
    doubled = [copy for step in random_steps("doubling", 1) for copy in step["copies"]]
    assert len(doubled) > 10


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["paged", "max-buffer", "doubling"])
def test_replay_detects_a_broken_allocator(kind, dtype):
    decoder = DECODERS[dtype]
    steps = random_steps(kind, 1, broken=True)
    assert not replay(steps, decoder, store_of(kind, decoder.shape, "cpu")).ok


def test_replay_detects_two_sequences_writing_one_block():
    decoder = DECODERS["float64"]
    tokens = {"a": [1, 2, 3, 4, 5], "b": [6, 7, 8, 9, 10]}

    def steps(blocks_of_b):
        place = {"a": [3, 1], "b": blocks_of_b}
        yield {
            "seqs": [{"id": i, "tokens": tokens[i], "start": 0, "blocks": place[i]} for i in "ab"]
        }
        yield {"seqs": [{"id": i, "tokens": [11], "start": 5, "blocks": place[i]} for i in "ab"]}

    def error(blocks_of_b):
        return replay(steps(blocks_of_b), decoder, PagedStore(decoder.shape, 5, 4)).error

    assert error([0, 2]) <= 1e-14
    assert error([0, 1]) > 0.01


def test_reading_unwritten_memory_yields_a_nan_error():
    decoder = DECODERS["float64"]
    steps = [{"seqs": [{"id": "a", "tokens": [3], "start": 2, "slot": 0, "prefix": [1, 2]}]}]
    found = replay(steps, decoder, ContiguousStore(decoder.shape, 8))
    assert found.error != found.error
    assert not found.ok


def test_packed_decoder_agrees_with_the_plain_one():
    decoder = DECODERS["float64"]
    tokens = list(range(20))
    packed = DecoderRunner(decoder, RecomputeStore()).all_logits(
        [TokenSpan("a", tokens, 0), TokenSpan("b", tokens[5:9], 0)]
    )
    for row, end in ((packed[0][-1], tokens), (packed[1][-1], tokens[5:9])):
        plain = exactness.recomputed(decoder, end, exactness.Causal())
        torch.testing.assert_close(row, plain, rtol=1e-12, atol=1e-12)


def test_a_fork_of_a_contiguous_buffer_copies_it():
    decoder = DECODERS["float64"]
    steps = [
        Step((TokenSpan("a", [1, 2, 3], 0, slot=0),)),
        Step(
            (TokenSpan("a", [4], 3, slot=0), TokenSpan("b", [5], 3, slot=8)),
            (Copy(0, 8, 3),),
            {"b": [1, 2, 3]},
        ),
    ]
    assert replay(steps, decoder, ContiguousStore(decoder.shape, 16)).error <= 1e-14


def test_replay_refuses_a_sequence_with_a_gap_or_changed_tokens():
    decoder = DECODERS["float64"]
    store = ContiguousStore(decoder.shape, 16)
    with pytest.raises(InputError, match="starts after unknown tokens"):
        replay([Step((TokenSpan("a", [1], 2, slot=0),))], decoder, store)
    again = [Step((TokenSpan("a", [1, 2], 0, slot=0),)), Step((TokenSpan("a", [1, 3], 0, slot=0),))]
    with pytest.raises(InputError, match="other tokens than before"):
        replay(again, decoder, store)
    with pytest.raises(InputError, match="no span"):
        Step.from_record({"seqs": [{"id": "a", "tokens": [1], "start": 0, "block": [1]}]})
