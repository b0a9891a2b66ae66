"""Each kind of attention against float64; stand-ins replace flash_attn and flashinfer."""

import re
import sys
from dataclasses import fields, replace

import pytest
from support.fake_kernels import PACKAGES, PagedWrapper

from evidence.prove.random_steps import BLOCK_SIZE, SLOTS, STORE_KINDS, random_steps
from evidence.prove.replay import replay
from evidence.prove.step import Step
from kvsim.backend.measure.grid import StepPlan
from kvsim.backend.measure.measure import measure
from kvsim.backend.measure.setup import Setup
from kvsim.backend.shape import Shape
from kvsim.backend.step import TokenSpan
from kvsim.backend.stores.buffers import BufferStore
from kvsim.backend.stores.contiguous import ContiguousStore
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.transformer import libraries
from kvsim.backend.transformer.attentions import ATTENTIONS, block_size_of
from kvsim.backend.transformer.between import PlainBetween
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.runner import DecoderRunner
from kvsim.backend.transformer.weights import DecoderWeights, LayerWeights
from kvsim.plumbing.errors import InputError

EXACT = Shape(2, 32, 6, 2, 16, 48, 50, "float64")
WIDE = Shape(2, 96, 6, 2, 64, 48, 50, "bfloat16")  # of a head_dim that the packages have


@pytest.mark.parametrize("kind", STORE_KINDS)
def test_batched_decode_attention_is_exact_on_every_store(kind):
    if kind == "paged":
        store = PagedStore(EXACT, SLOTS // BLOCK_SIZE + 1, BLOCK_SIZE)
    else:
        store = BufferStore(EXACT) if kind == "buffers" else ContiguousStore(EXACT, SLOTS)
    steps = [Step.from_record(record) for record in random_steps(kind, 5)]
    assert sum(sum(len(span.tokens) == 1 for span in step.spans) > 1 for step in steps) > 5
    found = replay(steps, Decoder(EXACT), store, "sdpa")
    assert found.ok, found


@pytest.fixture
def fake(monkeypatch, request):
    """An attention kind of another package with the package replaced by a stand-in."""
    kind = request.param
    monkeypatch.setitem(sys.modules, kind.replace("-", "_"), PACKAGES[kind])
    form = ATTENTIONS[kind]._replace(between=PlainBetween)
    monkeypatch.setitem(ATTENTIONS, kind, form)
    monkeypatch.setattr(PagedWrapper, "plans", 0)
    return kind


def steps_on(block_size):
    """Two prompts; a chunk and a decoding sequence; two that decode, over one block and three."""
    long, blocks = 2 * block_size + 3, [(3,), (5, 1, 7)]
    prompt = [7 * at % WIDE.vocab for at in range(long)]
    return [
        [TokenSpan("a", range(4), 0, blocks[0]), TokenSpan("b", prompt, 0, blocks[1])],
        [TokenSpan("b", [7], long, blocks[1]), TokenSpan("a", [5, 6, 9], 4, blocks[0])],
        [TokenSpan("a", [8], 7, blocks[0]), TokenSpan("b", [4], long + 1, blocks[1])],
    ]


def exact_logits(shape, weights, block_size):
    """The logits of the same steps and weights, computed in float64."""

    def wide(part):
        return None if part is None else part.double()

    layers = tuple(
        LayerWeights(**{each.name: wide(getattr(layer, each.name)) for each in fields(layer)})
        for layer in weights.layers
    )
    same = DecoderWeights(
        wide(weights.embedding), layers, wide(weights.norm), wide(weights.unembedding)
    )
    exact = replace(shape, dtype="float64")
    runner = DecoderRunner(Decoder(exact, same), PagedStore(exact, 9, block_size), "gather")
    return [runner.step(step) for step in steps_on(block_size)]


def error_of(kind, shape, block_size, graphs=False):
    """The largest relative error of the steps' logits, and the runner."""
    decoder = Decoder(shape)
    runner = DecoderRunner(decoder, PagedStore(shape, 9, block_size), kind)
    if graphs:
        runner.with_graphs(4 * block_size, ([1] * 2, [1, 3]))
    found = [runner.step(step) for step in steps_on(block_size)]
    exact = exact_logits(shape, decoder.weights, block_size)
    return max(
        float((ours.double() - true).abs().max() / true.abs().max())
        for ours, true in zip(found, exact, strict=True)
    ), runner


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize(
    ("fake", "dtype", "block_size"),
    [("flash-attn", "bfloat16", 256), ("flashinfer", "float16", 16)],
    indirect=["fake"],
)
def test_attention_packages_are_called_as_documented(fake, dtype, block_size, window, monkeypatch):
    shape = replace(WIDE, dtype=dtype, window=window)
    limit = {"bfloat16": 6e-2, "float16": 8e-3}[dtype]
    error, runner = error_of(fake, shape, block_size)
    assert error < limit
    assert PagedWrapper.plans == (3 if fake == "flashinfer" else 0)  # a step, not a layer
    error, runner = error_of(fake, shape, block_size, graphs=True)
    assert error < limit
    counts = runner.graphs and (runner.graphs.num_captured, runner.graphs.num_replayed)
    assert counts == ((1, 1) if fake == "flash-attn" else None)
    pages = libraries._pages
    monkeypatch.setattr(libraries, "_pages", lambda *at: pages(*at)[::-1])  # values as keys
    assert error_of(fake, shape, block_size)[0] > limit


@pytest.mark.parametrize("fake", ["flash-attn"], indirect=True)
def test_measurement_facts_name_the_attention(fake, tmp_path):
    setup = Setup(WIDE, rounds=1, block_size=block_size_of(fake), attention=fake)
    measured = measure(setup, [StepPlan((), (3, 5)), StepPlan(((4, 0),), ())], tmp_path / "log")
    assert measured.facts["backend"]["attention"] == "flash-attn"
    assert measured.facts["backend"]["kernel"].startswith("flash_attn: with_kvcache for decode")
    assert measured.facts["backend"]["block_size"] == 256
    assert "flash_attn" in measured.facts["software"]


@pytest.mark.parametrize(
    ("kind", "changes", "store", "words"),
    [
        ("flash-attn", {"dtype": "float32"}, None, "not computed in this dtype; got float32"),
        ("flashinfer", {"head_dim": 96}, None, "no kernel for this head_dim; got 96; one of: 64"),
        ("flash-attn", {}, None, r"larger blocks; got 16 slots; limit a multiple of 256"),
        ("flashinfer", {}, ContiguousStore, "reads blocks alone; paged memory, or triton"),
    ],
)
def test_a_shape_or_store_that_an_attention_lacks_is_a_one_line_error(kind, changes, store, words):
    shape = replace(WIDE, **changes)
    made = PagedStore(shape, 9, 16) if store is None else store(shape, 9)
    with pytest.raises(InputError) as raised:
        DecoderRunner(Decoder(shape), made, kind)
    assert "\n" not in str(raised.value)
    assert re.search(words, str(raised.value)), raised.value
