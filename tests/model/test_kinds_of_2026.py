"""Kinds of 2026 by their config alone: the KV cache that vLLM 0.33's own classes keep, and the
weights of transformers 5.24's classes of the same config, built without memory.
"""

import pytest

from kvsim.model import Model, ModelOptions
from kvsim.plumbing.errors import InputError

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
WINDOWS = {
    "layer_types": ["full_attention", "sliding_attention"] * 2,
    "sliding_window": 64,
}


def per_token(config: dict[str, object], tp: int = 1) -> dict[str, int]:
    """Bytes of a token by kind of layer."""
    table = {"hf_config": "unused", "tensor_parallel_size": tp}
    options = ModelOptions.parse(table, "model")
    found: dict[str, int] = {}
    for group in options.layout(Model.from_hf(config)).groups:
        found[group.kind] = found.get(group.kind, 0) + group.bytes_per_token
    return found


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # Keys of 24 and values of 16 elements; windows with twice the heads (models/mimo_v2.py).
        (
            WINDOWS
            | {"model_type": "mimo_v2_flash", "head_dim": 24, "v_head_dim": 16}
            | {"swa_num_key_value_heads": 4, "swa_head_dim": 24, "swa_v_head_dim": 16},
            {"full": 2 * 2 * 40 * 2, "sliding": 2 * 4 * 40 * 2},
        ),
        # Groups of heads under another key (models/step3p5.py).
        (
            WINDOWS
            | {"model_type": "step3p5", "num_key_value_heads": None, "num_attention_groups": 2},
            {"full": 2 * 2 * 16 * 4, "sliding": 2 * 2 * 16 * 4},
        ),
        # Query heads a layer do not move the cache (models/laguna.py).
        (
            WINDOWS | {"model_type": "laguna", "num_attention_heads_per_layer": [8, 12, 8, 12]},
            {"full": 2 * 2 * 16 * 4, "sliding": 2 * 2 * 16 * 4},
        ),
        # Heads of full attention are wider (models/gemma4_unified.py).
        (
            WINDOWS | {"model_type": "gemma4_unified_text", "global_head_dim": 32},
            {"full": 2 * 2 * 32 * 4, "sliding": 2 * 2 * 16 * 4},
        ),
        # Latents, kept as keys and values of 12 elements for all 8 heads (models/minicpm3.py,
        # models/transformers/base.py).
        *(
            (
                {"model_type": kind, "kv_lora_rank": 32, "q_lora_rank": 48}
                | {"qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8},
                {"full": 4 * 2 * 8 * 12 * 2},
            )
            for kind in ("minicpm3", "youtu")
        ),
        # Two attentions a layer (models/longcat_flash.py).
        (
            {"model_type": "longcat_flash", "kv_lora_rank": 32, "q_lora_rank": 48}
            | {"qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
            | {"ffn_hidden_size": 128, "expert_ffn_hidden_size": 32, "n_routed_experts": 4}
            | {"moe_topk": 2},
            {"mla": 4 * 2 * 36 * 2},
        ),
        # Windows have twice the heads where the file does not say it (transformers' class).
        (
            WINDOWS | {"model_type": "mimo_v2_flash", "v_head_dim": 8},
            {"full": 2 * 2 * 24 * 2, "sliding": 2 * 4 * 24 * 2},
        ),
        # An indexer's key in 16 bits, in two of four layers (models/minimax_m3).
        (
            {
                "model_type": "minimax_m3_text",
                "moe_layer_freq": [0, 0, 1, 1],
                "num_local_experts": 4,
                "num_experts_per_tok": 2,
                "dense_intermediate_size": 256,
                "sparse_attention_config": {
                    "sparse_index_dim": 8,
                    "sparse_num_index_heads": 2,
                    "sparse_attention_freq": [0, 0, 1, 1],
                },
            },
            {"full": 4 * 2 * 2 * 16 * 2 + 2 * 8 * 2},
        ),
        # Windows of three layers in four, and a gate a query head (models/muse_glimmer.py).
        (
            WINDOWS | {"model_type": "muse_glimmer_text"},
            {"full": 2 * 2 * 2 * 16 * 2, "sliding": 2 * 2 * 2 * 16 * 2},
        ),
        # Four query heads a KV head, eight, and no attention (models/nemotron_nas.py).
        (
            {
                "model_type": "nemotron-nas",
                "block_configs": [
                    {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 2.0}},
                    {"attention": {"n_heads_in_group": 8}, "ffn": {"no_op": True}},
                    {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.0}},
                    {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 2.0}},
                ],
            },
            {"full": (2 + 1 + 2) * 16 * 4},
        ),
    ],
    ids=lambda each: each.get("model_type", "") if isinstance(each, dict) else "",
)
def test_kv_bytes_per_token_equal_the_expected_ones(
    config: dict[str, object], expected: dict[str, int]
) -> None:
    assert per_token(SMALL | config) == expected


@pytest.mark.parametrize(
    ("config", "params"),
    [
        (
            {
                "model_type": "minimax_m3_text",
                "vocab_size": 200064,
                "hidden_size": 6144,
                "intermediate_size": 3072,
                "dense_intermediate_size": 12288,
                "shared_intermediate_size": 3072,
                "num_hidden_layers": 60,
                "num_attention_heads": 64,
                "num_key_value_heads": 4,
                "head_dim": 128,
                "max_position_embeddings": 524288,
                "num_local_experts": 128,
                "num_experts_per_tok": 4,
                "moe_layer_freq": [0] * 3 + [1] * 57,
                "sparse_attention_config": {"sparse_attention_freq": [0] * 3 + [1] * 57},
            },
            426_174_572_928,
        ),
        (
            {
                "model_type": "flint",
                "vocab_size": 150144,
                "hidden_size": 2048,
                "intermediate_size": 6144,
                "num_hidden_layers": 49,
                "num_attention_heads": 32,
                "num_key_value_heads": 4,
                "head_dim": 128,
                "max_position_embeddings": 262144,
                "moe_intermediate_size": 512,
                "shared_expert_intermediate_size": 1024,
                "num_experts": 256,
                "num_experts_per_tok": 6,
                "mlp_only_layers": [0, 1],
            },
            39_785_287_456,
        ),
        (
            {
                "model_type": "dbrx",
                "vocab_size": 32000,
                "d_model": 2048,
                "n_heads": 16,
                "n_layers": 24,
                "max_seq_len": 2048,
                "attn_config": {"kv_n_heads": 1},
                "ffn_config": {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1},
            },
            2_459_207_680,
        ),
    ],
    ids=["minimax_m3", "flint", "dbrx"],
)
def test_parameters_equal_transformers_classes_on_the_meta_device(
    config: dict[str, object], params: int
) -> None:
    assert Model.from_hf(config | {"torch_dtype": "bfloat16"}).num_params == params


def test_invalid_block_configs_are_refused() -> None:
    blocks = [{"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 1.0}}] * 4
    with pytest.raises(InputError, match=r"block_configs\[0\].attention"):
        Model.from_hf(SMALL | {"model_type": "nemotron-nas", "block_configs": blocks})


def test_a_config_may_hold_infinity(tmp_path) -> None:
    """As transformers 4 writes every Mamba-2's."""
    text = (
        '{"model_type": "mamba2", "num_heads": 8, "head_dim": 16, "hidden_size": 64, '
        '"num_hidden_layers": 2, "vocab_size": 128, "time_step_limit": [0.0, Infinity]}'
    )
    (tmp_path / "config.json").write_text(text)
    assert Model.from_hf(tmp_path / "config.json").is_recurrent
