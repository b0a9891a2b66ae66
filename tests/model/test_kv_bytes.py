"""KV bytes, to the byte: the published table, windows, tensor parallelism, quantised caches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.model import Model, model_names, named_model
from kvsim.model.layers import Absent, CompressedAttention
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB, KIB, MIB

# model: KiB a token as published, 2 * L * H_kv * D * 2 bytes.
TABLE = {
    "opt-13b": 800,
    "llama-2-13b": 800,
    "llama-2-7b": 512,
    "llama-3-8b": 128,
    "mistral-7b": 128,
    "mixtral-8x7b": 128,
    "llama-3-70b": 320,
    "qwen2.5-72b": 320,
    "qwen2.5-7b": 56,
    "deepseek-v3": 68.625,
    "gemma-2-9b": 168 + 168,
    "gemma-3-12b": 64 + 320,
    "gemma-3-27b": 80 + 416,
}


@pytest.mark.parametrize(("name", "kib"), TABLE.items())
def test_kv_bytes_per_token_equal_the_published_table(name, kib):
    assert named_model(name).kv_layout().bytes_per_token == kib * KIB


@pytest.mark.parametrize(
    ("name", "window", "full_kib", "sliding_kib", "cap_mib"),
    [
        ("mistral-7b", 4096, 0, 128, 512),
        ("gemma-2-9b", 4096, 168, 168, 672),
        ("gemma-3-12b", 1024, 64, 320, 320),
        ("gemma-3-27b", 1024, 80, 416, 416),
    ],
)
def test_windows_cap_the_kv_bytes_of_a_sequence(name, window, full_kib, sliding_kib, cap_mib):
    layout = named_model(name).kv_layout()
    groups = {group.kind: group for group in layout.groups}
    sliding = groups["sliding"]
    assert (sliding.window_tokens, sliding.bytes_per_token) == (window, sliding_kib * KIB)
    assert sum(g.bytes_per_token for k, g in groups.items() if k == "full") == full_kib * KIB
    assert window * sliding.bytes_per_token == cap_mib * MIB
    long = layout.sequence_bytes(100_000)
    assert long == 100_000 * full_kib * KIB + cap_mib * MIB


def test_gemma_3_12b_holds_32k_tokens_in_2_31_gib():
    layout = named_model("gemma-3-12b").kv_layout()
    held = layout.sequence_bytes(32 * 1024)
    assert held == 64 * KIB * 32_768 + 320 * MIB
    assert held / GIB == pytest.approx(2.31, abs=0.005)
    assert layout.bytes_per_token * 32_768 == 12 * GIB


@pytest.mark.parametrize(
    ("dtype", "per_token"),
    [
        ("bf16", 131_072),
        ("fp32", 262_144),
        ("fp8", 65_536),
        ("fp8_e4m3", 65_536),
        ("int8", 2 * 32 * 8 * (128 + 4)),
        ("int4", 2 * 32 * 8 * (128 // 2 + 128 // 64 * 4)),
    ],
)
def test_cache_dtype_sets_llama_3_8b_bytes_per_token(dtype, per_token):
    assert named_model("llama-3-8b").kv_layout(dtype).bytes_per_token == per_token


def test_int4_with_scales_is_28_1_per_cent_of_fp16():
    model = named_model("llama-3-8b")
    ratio = model.kv_layout("int4").bytes_per_token / model.kv_layout("fp16").bytes_per_token
    assert ratio == 0.28125
    coarse = model.kv_layout("int4", scale_group_size=128, scale_bytes=2)
    assert coarse.bytes_per_token == 2 * 32 * 8 * (64 + 2)


def test_fp8_ds_mla_takes_656_bytes_a_token_and_layer():
    layout = named_model("deepseek-v3").kv_layout("fp8_ds_mla")
    assert layout.bytes_per_token == 61 * 656
    assert layout.bytes_per_token / KIB == pytest.approx(39.1, abs=0.05)
    with pytest.raises(InputError, match="use fp8"):
        named_model("llama-3-8b").kv_layout("fp8_ds_mla")


@pytest.mark.parametrize(
    ("name", "tp", "kib"),
    [
        ("llama-3-70b", 4, 80),
        ("llama-3-70b", 8, 40),
        ("llama-3-70b", 16, 40),  # 8 KV heads: replicated
        ("qwen2.5-7b", 4, 14),
        ("falcon-7b", 1, 8),
        ("deepseek-v3", 8, 68.625),  # the latent is replicated
    ],
)
def test_tensor_parallelism_divides_or_replicates_kv_bytes(name, tp, kib):
    layout = named_model(name).kv_layout(tensor_parallel_size=tp)
    assert layout.bytes_per_token == kib * KIB


@pytest.mark.parametrize(("name", "tp"), [("llama-3-8b", 3), ("qwen2.5-7b", 7), ("gemma-3-1b", 8)])
def test_impossible_splits_are_refused(name, tp):
    with pytest.raises(InputError, match="tensor_parallel_size"):
        named_model(name).kv_layout(tensor_parallel_size=tp)


def test_recurrent_layers_keep_a_constant_state():
    """Jamba: 28 Mamba layers of 8192 x (16 + 3) elements, and 4 attention layers."""
    layout = named_model("jamba-v0.1").kv_layout()
    groups = {group.kind: group for group in layout.groups}
    assert groups["recurrent"].state_bytes == 28 * 8192 * (16 + 3) * 2
    assert (groups["full"].layers, layout.bytes_per_token) == (4, 16 * KIB)
    assert layout.sequence_bytes(1000) - layout.sequence_bytes(999) == 16 * KIB
    assert layout.sequence_bytes(0) == 0


def test_unknown_kv_dtypes_and_scales_without_quantisation_are_refused():
    model = named_model("llama-3-8b")
    with pytest.raises(InputError, match="unknown KV cache dtype"):
        model.kv_layout("fp7")
    with pytest.raises(InputError, match="scales belong to quantised KV caches"):
        model.kv_layout("fp16", scale_bytes=4)


@given(st.sampled_from(model_names()), st.integers(0, 50_000), st.integers(1, 1000))
def test_layout_groups_sum_to_the_models_layers_and_kv_bytes(name, tokens, more):
    model = named_model(name)
    layout = model.kv_layout()
    keeping = [layer for layer in model.layers if not getattr(layer.mixer, "shares_cache", False)]
    keeping = [layer for layer in keeping if not isinstance(layer.mixer, Absent)]
    if not any(isinstance(layer.mixer, CompressedAttention) for layer in keeping):  # keeps several
        assert sum(group.layers for group in layout.groups) == len(keeping)
    grown = layout.sequence_bytes(tokens + more) - layout.sequence_bytes(tokens)
    states = sum(group.state_bytes for group in layout.groups) if tokens == 0 else 0
    full = sum(g.bytes_per_token for g in layout.groups if g.window_tokens is None)
    assert full * more <= grown - states <= layout.bytes_per_token * more


@given(
    layers=st.integers(1, 40),
    kv_heads=st.sampled_from([1, 2, 4, 8]),
    groups=st.sampled_from([1, 2, 4]),
    head_dim=st.sampled_from([32, 64, 80, 128, 256]),
    tp=st.sampled_from([1, 2, 4, 8]),
)
def test_kv_bytes_of_any_llama_follow_the_formula(layers, kv_heads, groups, head_dim, tp):
    heads = kv_heads * groups
    if heads % tp:
        tp = 1
    config = {
        "model_type": "llama",
        "hidden_size": 512,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": 1024,
        "vocab_size": 1000,
    }
    layout = Model.from_hf(config).kv_layout(tensor_parallel_size=tp)
    assert layout.bytes_per_token == 2 * layers * max(1, kv_heads // tp) * head_dim * 2
