import pytest

from evidence.prove import exactness as rules
from evidence.prove.schemes import SCHEMES, Absorbed, KeyValue, LayerInput, NoCache, decode
from kvsim.backend.shape import Shape
from kvsim.backend.transformer.decoder import Decoder

# OPT-13B: its two MLP matrices of 4 d as three of 8/3 d, which is the same count of weights.
OPT_13B = Shape(40, 5120, 40, 40, 128, 13653, 50272, "float16")


@pytest.mark.parametrize("heads", [(8, 2), (4, 4), (6, 1)])
def test_counted_flops_and_bytes_equal_the_formulas(heads):
    decoder = Decoder(Shape(2, 32, *heads, 8, 48, 20, "float64"))
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    exact, _ = decode(decoder, tokens, NoCache)
    for scheme in SCHEMES:
        logits, cost = decode(decoder, tokens, scheme)
        assert cost == scheme.cost(decoder.shape, len(tokens))
        assert float((logits - exact).abs().max()) < 1e-12


def test_opt_13b_flops_equal_the_tutorials():
    # 161 prompt and 338 output tokens: 2,819 TFLOP without a cache, 479 with x kept, 12.8 with KV.
    steps = range(161, 161 + 338)
    total = {
        scheme: sum(scheme.cost(OPT_13B, context).flop for context in steps) / 1e12
        for scheme in (NoCache, KeyValue, LayerInput)
    }
    prefill = NoCache.cost(OPT_13B, 160).flop / 1e12
    assert total[NoCache] == pytest.approx(2819, rel=0.02)
    assert total[KeyValue] + prefill == pytest.approx(12.8, rel=0.02)
    assert total[LayerInput] + prefill == pytest.approx(479, rel=0.02)
    mib = {scheme: scheme.cost(OPT_13B, 499).kept_bytes / 2**20 for scheme in SCHEMES}
    assert mib[KeyValue] == pytest.approx(390, abs=0.5)
    assert mib[LayerInput] == pytest.approx(195, abs=0.5)
    assert mib[Absorbed] == pytest.approx(7992, abs=1)


def test_caching_layer_inputs_takes_twice_the_kv_bytes_under_gqa():
    llama = Shape(32, 4096, 32, 8, 128, 14336, 128256, "bfloat16")
    assert LayerInput.cost(llama, 7).kept_bytes == 2 * KeyValue.cost(llama, 7).kept_bytes


@pytest.mark.parametrize(
    ("truth", "rule", "exact"),
    [
        (rules.Causal, rules.Causal, True),
        (rules.Bidirectional, rules.Bidirectional, False),
        (rules.ReRope, rules.ReRope, True),
        (rules.ReRope, rules.ReRopeRotated, False),
        (rules.ReRope, rules.ReRopeBoth, True),
    ],
)
def test_kv_caching_fails_for_bidirectional_attention_and_rotated_rerope_keys(truth, rule, exact):
    decoder = Decoder(Shape(2, 32, 4, 2, 8, 48, 20, "float64"))
    error = rules.largest_error(decoder, [3, 1, 4, 1, 5, 9, 2, 6, 5], truth(), rule())
    assert error <= 1e-13 if exact else error > 0.01


def test_rerope_with_cached_rotated_keys_is_exact_within_its_window():
    # The counter-example fails for its distance, and for nothing else.
    decoder = Decoder(Shape(2, 32, 4, 2, 8, 48, 20, "float64"))
    tokens = [3, 1, 4, 1][: rules.ReRope.WINDOW]
    assert rules.largest_error(decoder, tokens, rules.ReRope(), rules.ReRopeRotated()) <= 1e-13
