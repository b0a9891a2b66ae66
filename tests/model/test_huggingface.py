"""config.json as people have it: dialects, defaults left out, and what is wrong with bad ones."""

import json

import pytest

from kvsim.model import Attention, Dense, Experts, LatentAttention, Model
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import KIB

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}


def windows(model):
    return [layer.mixer.window_tokens for layer in model.layers]


def test_gemma_3_config_without_default_keys_is_read():
    """As gemma-3-4b is published: head counts, head size and vocabulary are left to the class."""
    model = Model.from_hf(
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "text_config": {
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "model_type": "gemma3_text",
                "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": 1024,
            },
            "torch_dtype": "bfloat16",
            "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
        }
    )
    assert model.attention == Attention(8, 4, 256, 1024)
    assert windows(model)[:7] == [1024] * 5 + [None, 1024]
    assert (model.vocab_size, model.max_position_embeddings) == (262_208, 131_072)
    # Windows rotate 131,072 positions, the other layers eight times as many.
    assert model.rotary_elements == 9 * 131_072 * 256
    assert model.tie_word_embeddings
    assert model.torch_dtype == "bfloat16"


def test_layer_types_of_newer_configs_are_read():
    config = LLAMA | {
        "model_type": "gpt_oss",
        "head_dim": 64,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    }
    model = Model.from_hf(config)
    assert windows(model) == [128, None, 128, None]
    assert model.layers[0].feed_forward == Experts(128, 8, 2)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_type": "mistral", "sliding_window": 100}, [100] * 4),
        ({"model_type": "mistral", "sliding_window": None}, [None] * 4),
        ({"model_type": "phi3", "sliding_window": 512}, [None] * 4),  # longer than any sequence
        ({"model_type": "qwen2", "sliding_window": 100, "use_sliding_window": False}, [None] * 4),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 100,
                "use_sliding_window": True,
                "max_window_layers": 3,
            },
            [None, None, None, 100],
        ),
        ({"model_type": "gemma2", "sliding_window": 100}, [100, None, 100, None]),
        (
            {"model_type": "cohere2", "sliding_window": 100, "sliding_window_pattern": 4},
            [100, 100, 100, None],
        ),
    ],
)
def test_sliding_window_layers_are_placed_by_pattern(changes, expected):
    assert windows(Model.from_hf(LLAMA | changes)) == expected


def test_gpt2_key_names_are_read():
    gpt2 = Model.from_hf(
        {
            "model_type": "gpt2",
            "n_embd": 64,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 128,
            "n_inner": None,
            "vocab_size": 100,
        }
    )
    assert gpt2.attention == Attention(4, 4, 16)
    assert gpt2.layers[0].feed_forward == Dense(256, gated=False)
    assert (gpt2.max_position_embeddings, gpt2.torch_dtype) == (128, "float16")


@pytest.mark.parametrize(
    ("changes", "kv_heads"),
    [
        ({"model_type": "falcon", "multi_query": True}, 1),
        ({"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2}, 2),
        ({"model_type": "gpt_bigcode", "multi_query": True}, 1),
        ({"model_type": "mpt", "attn_config": {"kv_n_heads": 2}}, 2),
        ({"model_type": "chatglm", "multi_query_group_num": 2}, 2),
        ({"num_key_value_heads": 4}, 4),
        ({"num_key_value_heads": None}, 8),
    ],
)
def test_kv_heads_are_read_by_every_key(changes, kv_heads):
    assert Model.from_hf(LLAMA | changes).attention.kv_heads == kv_heads


def test_deepseek_has_dense_layers_first_and_shared_experts():
    model = Model.from_hf(
        LLAMA
        | {
            "model_type": "deepseek_v2",
            "kv_lora_rank": 32,
            "q_lora_rank": None,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "n_routed_experts": 16,
            "n_shared_experts": 2,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 24,
            "first_k_dense_replace": 1,
        }
    )
    assert model.attention == LatentAttention(8, None, 32, 16, 8, 16)
    assert model.layers[0].feed_forward == Dense(128)
    assert model.layers[1].feed_forward == Experts(24, 16, 4, 48)
    assert model.kv_layout().bytes_per_token == 4 * (32 + 8) * 2


def test_hybrid_override_list_places_mamba_2_layers():
    model = Model.from_hf(
        LLAMA
        | {
            "model_type": "bamba",
            "num_key_value_heads": 2,
            "attn_layer_indices": [2],
            "mamba_n_heads": 16,
            "mamba_d_head": 8,
            "mamba_n_groups": 1,
            "mamba_d_state": 32,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
        }
    )
    kinds = {group.kind: group for group in model.kv_layout().groups}
    assert (kinds["recurrent"].layers, kinds["full"].layers) == (3, 1)
    # 16 heads of 8 x 32, and 3 inputs of a convolution over 128 + 2 * 32 channels.
    assert kinds["recurrent"].state_bytes == 3 * 2 * (16 * 8 * 32 + 3 * (128 + 64))


@pytest.mark.parametrize("named", [True, False])
def test_gated_delta_layers_are_placed_by_interval_or_layer_types(named):
    config = LLAMA | {
        "model_type": "qwen3_next",
        "full_attention_interval": 2,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
    }
    if named:
        config["layer_types"] = ["linear_attention", "full_attention"] * 2
    recurrent, full = Model.from_hf(config).kv_layout().groups
    assert (recurrent.layers, full.layers) == (2, 2)
    # 4 states of 8 x 16 in float32; 3 inputs of a convolution over 2 * 16 + 64 channels.
    assert recurrent.state_bytes == 2 * (4 * 8 * 16 * 4 + 3 * (2 * 16 + 64) * 2)


@pytest.mark.parametrize(
    ("scaling", "longest"),
    [
        (None, 256),
        ({"type": "linear", "factor": 2.0}, 512),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}, 1024),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}, 256),
    ],
)
def test_rope_scaling_extends_the_maximum_length(scaling, longest):
    assert Model.from_hf(LLAMA | {"rope_scaling": scaling}).max_position_embeddings == longest


@pytest.mark.parametrize(
    ("table", "bits"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8),
        ({"quant_method": "fp8"}, 8),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}}},
            },
            8,
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4 + 20 / 128),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}
                },
            },
            4.5,
        ),
        ({"quant_method": "inc", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, 8),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "mxfp8"}}, 8.25),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}},
            },
            4.25,
        ),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": [{"dtype": "fp8_e4m3"}]},
            },
            8,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 32}}
                },
            },
            4.25,
        ),
    ],
)
def test_quantisation_configs_give_bits_by_kind_of_matrix(table, bits):
    form = Model.from_hf(LLAMA | {"quantization_config": table}).weight_format
    assert (form.linear_bits, form.other_bits) == (bits, 16)


WEIGHTS_8 = {"num_bits": 8, "type": "float"}
WEIGHTS_4 = {"num_bits": 4, "type": "float", "group_size": 16}


@pytest.mark.parametrize(
    ("table", "bits"),
    [
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"targets": ["re:.*self_attn.*"], "weights": WEIGHTS_8},
                    "group_1": {"targets": ["re:.*mlp.experts.*"], "weights": WEIGHTS_4},
                },
            },
            (16, 4.5, 8),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"targets": ["Linear"], "weights": WEIGHTS_8},
                    "group_1": {"targets": ["re:.*experts.*"], "weights": WEIGHTS_4},
                },
            },
            (8, 4.5, 8),
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "model.layers.0.mixer.in_proj": {"quant_algo": "FP8"},
                    "model.layers.1.mixer.out_proj": {"quant_algo": "FP8"},
                    "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
                    "model.layers.1.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
                    "model.layers.2.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
                    "model.layers.3.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
                },
            },
            (16, 4.5, 12),
        ),
    ],
)
def test_mixed_quantisation_gives_bits_by_kind_of_matrix(table, bits):
    form = Model.from_hf(LLAMA | {"quantization_config": table}).weight_format
    assert (form.linear_bits, form.expert_bits, form.mixer_bits) == bits
    assert form.other_bits == 16


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"targets": ["re:.*q_proj"], "weights": WEIGHTS_8},
                    "group_1": {"targets": ["re:.*o_proj"], "weights": WEIGHTS_4},
                },
            },
            "one kind are stored by several schemes",
        ),
        ({"quant_method": "modelopt", "quant_algo": "ODD"}, "unknown quant_algo; got 'ODD'"),
        ({"quant_method": "quark", "global_quant_config": {}}, "Quark's is not understood"),
        ({"quant_method": "torchao"}, "unknown quant_method; got 'torchao'"),
        ({"quant_method": "awq", "bits": 400}, "not a whole number|number of bits"),
        ({"quant_method": "fp8", "expert_dtype": "fp6"}, "unknown expert_dtype; got 'fp6'"),
    ],
)
def test_unknown_quantisation_schemes_are_named(table, message):
    with pytest.raises(InputError, match=message):
        Model.from_hf(LLAMA | {"quantization_config": table})


@pytest.mark.parametrize(
    ("left_out", "bits"),
    [
        (["lm_head", "model.layers.0.mlp.gate"], None),
        (["lm_head", "model.layers.*.self_attn*"], 16),
        (["re:.*self_attn.*"], 16),
        (
            ["model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.o_proj"],
            16 / 4 + 4.5 * 3 / 4,
        ),
    ],
)
def test_unquantised_attention_keeps_its_bits(left_out, bits):
    table = {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": left_out}
    model = Model.from_hf(LLAMA | {"quantization_config": table})
    assert model.weight_format.mixer_bits == bits
    mixers = sum(layer.mixer.weights(64, 1).linear for layer in model.layers)
    plain = model.weight_format.num_bytes(model.weights()) - mixers * ((bits or 4.5) - 4.5) / 8
    quantized = Model.from_hf(
        LLAMA | {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    )
    assert plain == pytest.approx(quantized.weight_bytes(), abs=1)


FP8_CACHE = {"dynamic": False, "num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    ("table", "dtype", "bytes_per_token"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "auto", 2),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": FP8_CACHE},
            "fp8",
            1,
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
            "fp8",
            1,
        ),
        (
            {
                "quant_method": "modelopt",
                "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
            },
            "fp8",
            1,
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"},
            "nvfp4",
            5 / 8,  # heads of 16 elements
        ),
        # What the engine does not know it leaves in the model's dtype.
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "INT8"},
            "auto",
            2,
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "FP8",
                "kv_cache_scheme": {"dynamic": True, "num_bits": 8, "type": "float"},
            },
            "auto",
            2,
        ),
        ({"quant_method": "fp8", "kv_cache_scheme": FP8_CACHE}, "auto", 2),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
                "kv_cache_scheme": FP8_CACHE,
            },
            "fp8",
            1,
        ),
    ],
)
def test_kv_cache_scheme_of_a_checkpoint_sets_the_cache_dtype(table, dtype, bytes_per_token):
    plain = Model.from_hf(LLAMA).kv_layout().bytes_per_token
    model = Model.from_hf(LLAMA | {"quantization_config": table})
    assert model.kv_cache_dtype == dtype
    assert model.kv_layout().bytes_per_token == plain * bytes_per_token / 2
    assert model.kv_layout("bf16").bytes_per_token == plain


def test_model_is_read_from_a_file_or_its_folder(tmp_path):
    folder = tmp_path / "tiny-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    by_file, by_folder = Model.from_hf(folder / "config.json"), Model.from_hf(folder)
    assert by_file == by_folder
    assert by_file.name == "tiny-llama"
    assert by_file.kv_layout().bytes_per_token == KIB


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not a JSON object"),
        (json.dumps({"model_type": "llama"}).encode(), "required key 'num_hidden_layers'"),
        (json.dumps(LLAMA | {"num_attention_heads": 0}).encode(), "num_attention_heads"),
        (json.dumps(LLAMA | {"hidden_size": "64"}).encode(), "hidden_size"),
        (json.dumps(LLAMA | {"torch_dtype": "int3"}).encode(), "unknown torch_dtype"),
        (json.dumps(LLAMA | {"is_encoder_decoder": True}).encode(), "not modelled"),
        (json.dumps(LLAMA | {"layer_types": ["linear_attention"] * 4}).encode(), "linear att"),
        (json.dumps(LLAMA | {"layer_types": ["other_attention"] * 4}).encode(), "other_att"),
        (json.dumps(LLAMA | {"attn_type_list": [0, 1]}).encode(), "with attn_type_list"),
        (json.dumps(LLAMA | {"model_type": "t5"}).encode(), "model_type 't5'"),
        (json.dumps(LLAMA | {"model_type": "rwkv"}).encode(), "not understood"),
        (json.dumps(LLAMA | {"layer_types": ["full_attention"]}).encode(), "one layer type"),
        (
            json.dumps(LLAMA | {"quantization_config": {"quant_method": "aqlm"}}).encode(),
            "unknown quant_method",
        ),
    ],
)
def test_invalid_config_file_is_a_one_line_error(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        Model.from_hf(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_config_file_is_named(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        Model.from_hf(tmp_path / "nothing.json")
