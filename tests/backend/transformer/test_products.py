"""Matrix products with FP8 weights, on a CPU, where torch supports them too."""

from dataclasses import fields, replace

import pytest
import torch

from kvsim.backend.shape import Shape
from kvsim.backend.step import TokenSpan
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.transformer import decoder as module
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.products import (
    FP8,
    FP8_MOST,
    Fp8Rows,
    check_products,
    multiply,
    quantise,
)
from kvsim.backend.transformer.runner import DecoderRunner
from kvsim.backend.transformer.weights import DecoderWeights
from kvsim.plumbing.errors import InputError

SHAPE = Shape(2, 48, 6, 2, 16, 80, 50, qkv_bias=True, weights="fp8")
HALF = 2.0**-4  # E4M3 has three bits after the first: a number is off by a 16th at the most
SMALLEST = 2.0**-10  # half of its least step, for numbers near zero


def wide(weight):
    """The weight dequantised to float64."""
    return weight.rows.double() * weight.scale.double()


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 2e-6), (torch.bfloat16, 1e-2)])
def test_fp8_product_is_exact_except_for_rounding(dtype, digits):
    numbers = torch.Generator().manual_seed(1)
    rows = torch.randn(7, 64, generator=numbers).to(dtype)
    rows[3] *= 1000
    weight = torch.randn(48, 64, generator=numbers).to(dtype)
    narrow, ours = quantise(weight), quantise(rows)
    assert narrow.rows.dtype == FP8
    assert narrow.rows.float().abs().amax(1).eq(FP8_MOST).all()
    found = multiply(rows, narrow).double()
    size = wide(ours).abs() @ wide(narrow).abs().T
    assert ((found - wide(ours) @ wide(narrow).T).abs() <= digits * size).all()
    # Against the numbers themselves, in float64: what two roundings make of it at the most.
    rows, weight = rows.double(), weight.double()
    true, size = rows @ weight.T, rows.abs() @ weight.abs().T
    near_zero = ours.scale.double() * weight.abs().sum(1)
    near_zero = near_zero + rows.abs().sum(1, keepdim=True) * narrow.scale.double().T
    limit = (2 * HALF + HALF**2 + 2 * digits) * size + 2 * SMALLEST * near_zero
    assert ((found - true).abs() <= limit).all()
    assert (found - true).norm() < HALF * true.norm()


def test_every_matrix_of_a_layer_is_in_fp8(monkeypatch):
    """The FP8 decoder equals a float decoder with dequantised weights and rows rounded by hand."""
    ours = Decoder(SHAPE)
    layers = []
    for layer in ours.weights.layers:
        parts = {each.name: getattr(layer, each.name) for each in fields(layer)}
        narrow = {name: part for name, part in parts.items() if isinstance(part, Fp8Rows)}
        assert set(narrow) == {"qkv", "output", "gate_up", "down"}
        layers.append(replace(layer, **{name: wide(part).float() for name, part in narrow.items()}))
    weights = ours.weights
    same = DecoderWeights(weights.embedding, tuple(layers), weights.norm, weights.unembedding)
    plain = Decoder(replace(SHAPE, weights=None), same)

    def logits(decoder):
        spans = [TokenSpan("a", range(9), 0, (3, 5, 1))]
        return DecoderRunner(decoder, PagedStore(SHAPE, 9, 4), "gather").step(spans)

    def by_hand(rows, weight, bias=None, narrow=None):
        return torch.nn.functional.linear(wide(quantise(rows)).float(), weight, bias)

    found, unrounded = logits(ours), logits(plain)
    monkeypatch.setattr(module, "multiply", by_hand)
    torch.testing.assert_close(found, logits(plain), rtol=1e-3, atol=1e-3)
    assert not torch.allclose(found, unrounded, rtol=1e-2, atol=1e-2)


def test_a_device_or_shape_without_fp8_products_is_refused_in_one_line(monkeypatch):
    check_products(replace(SHAPE, weights=None, hidden=40), "cpu")
    with pytest.raises(InputError, match="multiples of 16; got 40"):
        check_products(replace(SHAPE, hidden=40), "cpu")
    check_products(SHAPE, "cpu")
    config = {"num_attention_heads": 6, "hidden_size": 48, "num_hidden_layers": 2,
              "intermediate_size": 80, "vocab_size": 50}  # fmt: skip
    assert Shape.from_hf(config | {"quantization_config": {"quant_method": "fp8"}}).weights == "fp8"
    with pytest.raises(InputError, match="not computed; got awq"):
        Shape.from_hf(config | {"quantization_config": {"quant_method": "awq"}})

    def unsupported(*_, **__):
        raise RuntimeError("torch._scaled_mm is only supported on newer devices\nand so on")

    monkeypatch.setattr(torch, "_scaled_mm", unsupported)
    with pytest.raises(InputError) as raised:
        check_products(SHAPE, "cpu")
    assert str(raised.value) == (
        "--model: fp8 weights are not multiplied here; got float32 on cpu: torch._scaled_mm is "
        "only supported on newer devices; limit a GPU of compute capability 8.9, in bfloat16; name "
        "the model without its quantisation"
    )
