"""Every architecture that has a line is read; what has none is refused by name."""

import pytest
from support.each import check_each

from kvsim.model import Model, Recurrence
from kvsim.model.hf.architecture import ARCHITECTURES
from kvsim.model.layers import Absent, Attention, Experts
from kvsim.plumbing.errors import InputError

# Keys enough for any of them.
CONFIG = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "sliding_window": 128,
    "torch_dtype": "bfloat16",
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
MLA = {
    "kv_lora_rank": 64,
    "q_lora_rank": 96,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
}
NEEDED = {
    "mamba": {"state_size": 16},
    "falcon_mamba": {"state_size": 16},
    "mamba2": {"num_heads": 8, "head_dim": 64, "state_size": 16},
    "jamba": {"attn_layer_period": 4, "attn_layer_offset": 1},
    "bamba": {"attn_layer_indices": [2], "mamba_n_heads": 8},
    "granitemoehybrid": {"attn_layer_indices": [2], "mamba_n_heads": 8},
    "falcon_h1": {"mamba_n_heads": 8, "mamba_d_ssm": 512},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"] * 2, "n_mamba_heads": 8},
    "nemotron_h": {"hybrid_override_pattern": "ME*-", "mamba_num_heads": 8, **MOE},
    "kimi_linear": {"linear_attn_config": {"full_attn_layers": [4]}, **MLA, **MOE},
    "olmo_hybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "longcat_flash": {"ffn_hidden_size": 128, **MLA, **MOE},
    "hy_v4": MLA | MOE,
    "lfm2": {"full_attn_idxs": [1, 3]},
    "lfm2_moe": {"full_attn_idxs": [1, 3], "num_dense_layers": 2, **MOE},
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25"), MLA | MOE),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa", "glm4_moe_lite", "minicpm3"), MLA | MOE),
    "deepseek_v4": {"o_groups": 4, **MOE},
    **dict.fromkeys(("qwen2_moe", "qwen3_moe", "qwen3_5_moe_text", "mixtral"), MOE),
    "gemma3n_text": {"num_kv_shared_layers": 1},
    "gemma4_text": {"hidden_size_per_layer_input": 16},
}


def model(kind, **changes):
    return Model.from_hf({"model_type": kind, **CONFIG, **NEEDED.get(kind, {}), **changes})


def test_every_architecture_is_read():
    check_each(ARCHITECTURES, check_architecture)


def check_architecture(kind):
    found = model(kind)
    layout = found.kv_layout()
    assert found.kind == kind
    assert 0 < found.num_active_params <= found.num_params
    assert layout.bytes_per_token > 0 or any(group.state_bytes for group in layout.groups)


@pytest.mark.parametrize("kind", ["deepseek_v41", "rwkv", "t5", "minimax_text_01", "acme"])
def test_unknown_model_type_is_refused_by_name(kind):
    with pytest.raises(InputError, match=f"not understood; got model_type '{kind}'"):
        model(kind)


def test_cross_attention_models_are_detected_and_refused():
    with pytest.raises(InputError, match="with cross_attention_layers"):
        model("llama", cross_attention_layers=[3])


@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "vocab_size"])
def test_per_layer_list_for_an_architecture_without_one_is_refused(key):
    with pytest.raises(InputError, match=f"{key}: not a whole number >= 1; got \\[64, 64\\]"):
        model("llama", **{key: [64, 64]})


def test_layers_that_share_a_kv_cache_store_none():
    found = model("gemma3n_text", num_kv_shared_layers=2)
    assert [layer.mixer.shares_cache for layer in found.layers] == [False, False, True, True]
    assert sum(group.layers for group in found.kv_layout().groups) == 2


def test_gemma_4_has_larger_heads_in_full_attention_layers():
    found = model("gemma4_text", sliding_window_pattern=2, attention_k_eq_v=True)
    shapes = [(layer.mixer.kv_heads, layer.mixer.head_dim) for layer in found.layers]
    assert shapes == [(2, 256), (2, 512)] * 2
    fewer = model(
        "gemma4_text",
        sliding_window_pattern=2,
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
    )
    assert fewer.layers[1].mixer.kv_heads == 1


def test_nemotron_h_layer_has_a_mixer_or_a_feed_forward_part():
    found = model("nemotron_h")
    parts = [(type(layer.mixer), type(layer.feed_forward)) for layer in found.layers]
    assert [mixer for mixer, _ in parts] == [Recurrence, Absent, Attention, Absent]
    assert parts[1][1] is Experts
    assert [group.kind for group in found.kv_layout().groups] == ["recurrent", "full"]


def test_falcon_h1_has_kv_and_states_in_every_layer():
    full, state = model("falcon_h1").kv_layout().groups
    assert (full.layers, state.layers) == (4, 4)


def test_llama_4_mixes_dense_and_expert_layers():
    found = model("llama4_text", interleave_moe_layer_step=2, num_local_experts=4)
    kinds = [isinstance(layer.feed_forward, Experts) for layer in found.layers]
    assert kinds == [False, True, False, True]
    assert found.layers[0].feed_forward.intermediate_size == 16384
    assert found.layers[1].feed_forward.shared_intermediate_size == 512


def test_llama_4_has_local_attention_in_three_of_four_layers():
    found = model("llama4_text")
    assert [layer.mixer.chunk_tokens for layer in found.layers] == [8192, 8192, 8192, None]
    listed = model("llama4_text", no_rope_layers=[1, 0, 1, 0], attention_chunk_size=1024)
    assert [layer.mixer.chunk_tokens for layer in listed.layers] == [1024, None, 1024, None]
    whole = model("llama4_text", attention_chunk_size=None)
    assert not any(layer.mixer.chunk_tokens for layer in whole.layers)
    assert found.kv_layout() == whole.kv_layout()  # as simulated, where every token is kept


def test_sparse_attention_indexer_keys_are_cached():
    """DeepSeek-V3.2: 656 bytes of fp8_ds_mla and 128 + 4 of the indexer, a token and layer."""
    plain = model("deepseek_v3", kv_lora_rank=512, qk_rope_head_dim=64)
    sparse = model("deepseek_v32", kv_lora_rank=512, qk_rope_head_dim=64)
    assert plain.kv_layout("fp8_ds_mla").bytes_per_token == 4 * 656
    assert sparse.kv_layout("fp8_ds_mla").bytes_per_token == 4 * (656 + 132)
    assert sparse.kv_layout().bytes_per_token == 4 * (2 * 576 + 132)
    assert sparse.kv_layout("fp8").bytes_per_token == 4 * (656 + 132)  # as FlashMLA keeps it
    assert plain.kv_layout("fp8").bytes_per_token == 4 * 576
    assert sparse.kv_layout("nvfp4_ds_mla").bytes_per_token == 4 * (352 + 132)


@pytest.mark.parametrize(
    ("shared", "indexers"),
    [
        ({"index_topk_freq": 4}, 2),
        ({"index_topk_freq": 2, "index_skip_topk_offset": 1}, 2),
        ({"index_topk_freq": 4, "index_topk_pattern": "FSFF"}, 3),
        ({"indexer_types": ["full", "shared", "shared", "shared"]}, 1),
    ],
)
def test_layers_that_share_an_indexer_store_no_indexer_keys(shared, indexers):
    found = model("glm_moe_dsa", kv_lora_rank=512, qk_rope_head_dim=64, **shared)
    assert found.kv_layout().bytes_per_token == 4 * 2 * 576 + indexers * 132


# Parameters that transformers 5.23.0 counts in a model made of such a file (without storage).
COUNTED = [
    ("zamba2", {"n_mamba_heads": 80, "mamba_headdim": 64, "num_mem_blocks": 2}, 2_662_214_560),
    ("zamba2", {"use_shared_attention_adapter": True}, 2_517_237_776),
    ("gemma3n_text", {}, 6_835_235_568),
    ("persimmon", {"hidden_size": 4096, "intermediate_size": 16384}, 9_397_175_296),
    ("nanochat", {"tie_word_embeddings": False}, 256_573_440),
]
ZAMBA = {
    "hidden_size": 2560,
    "num_hidden_layers": 54,
    "layers_block_type": [
        "hybrid" if index in (6, 12, 18, 24, 30, 36, 42, 47, 51) else "mamba" for index in range(54)
    ],
    "num_attention_heads": 32,
    "intermediate_size": 10240,
    "mamba_d_state": 64,
    "n_mamba_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
SIZES = {
    "zamba2": ZAMBA,
    "gemma3n_text": {
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
        "num_hidden_layers": 35,
    },
    "persimmon": {
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "vocab_size": 262144,
        "max_position_embeddings": 16384,
    },
    "nanochat": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
        "intermediate_size": 8192,
        "vocab_size": 50304,
        "max_position_embeddings": 2048,
    },
}


@pytest.mark.parametrize(("kind", "changes", "params"), COUNTED)
def test_parameter_counts_equal_transformers(kind, changes, params):
    found = Model.from_hf({"model_type": kind, **SIZES[kind], **changes})
    assert found.num_params == pytest.approx(params, rel=5e-5)


def test_window_of_zero_tokens_means_full_attention():
    assert model("qwen2_moe", sliding_window=0, use_sliding_window=True).layers == (
        model("qwen2_moe", sliding_window=None).layers
    )


def test_layer_list_sets_the_number_of_layers():
    listed = ["mamba", "moe", "attention", "mlp"]
    found = model(
        "nemotron_h", hybrid_override_pattern=None, layers_block_type=listed, num_hidden_layers=None
    )
    assert found.layers == model("nemotron_h").layers


def test_generated_window_pattern_ends_with_a_full_attention_layer():
    found = model("exaone4", num_hidden_layers=8, sliding_window_pattern="LLLG")
    assert [layer.mixer.window_tokens for layer in found.layers] == [128, 128, 128, None] * 2
    shorter = model("exaone4", num_hidden_layers=6, sliding_window_pattern="LLLG")
    assert shorter.layers[-1].mixer.window_tokens is None


def test_falcon_mamba_width_is_read_from_its_config():
    narrow = model("falcon_mamba", expand=16, state_size=16)
    assert narrow.layers[0].mixer.conv_width == CONFIG["intermediate_size"]


def test_outer_config_fills_keys_missing_in_the_text_config():
    found = Model.from_hf(
        {
            "model_type": "mistral3",
            "torch_dtype": "bfloat16",
            "text_config": {**CONFIG, "model_type": "mistral", "sliding_window": None},
            "vision_config": {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128},
        }
    )
    assert found.torch_dtype == "bfloat16"
    assert found.tower_params == 2 * (4 * 64**2 + 2 * 64 * 128) + 3 * 14**2 * 64 + (64 + 256) * 256
