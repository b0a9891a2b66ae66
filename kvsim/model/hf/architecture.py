"""The meaning of a model_type beyond its keys: one line for each supported architecture.

Defaults that decide sizes are those of the configuration classes of Hugging Face transformers (4.40
to 5.23). A checkpoint's file leaves out its class's defaults. Norms, biases and windows are those
of its modelling code. A model_type without a line here is refused by name, since a misread
architecture would silently give wrong figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kvsim.plumbing.errors import InputError


@dataclass(frozen=True, slots=True)
class Architecture:
    """Facts about one model_type. defaults: values of keys that a file may omit. gated: the
    feed-forward part has three matrices.

    layer_norm: norms have biases. biases: on queries, keys, values and output as the file says
    ("config"), on the first three ("qkv"), or on every projection ("all"). norms: over the hidden
    state, in one layer. qk_norm: of queries and keys, over one head's elements or all heads'.
    windows: which layers slide where the file lists none and gives no pattern. linear: the
    recurrence of the layer type "linear_attention". output_gate: queries come with a gate.
    attention_sinks: one parameter a head. router_bias: one a routed expert. compressed: keys of
    several tokens are kept as one.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    gated: bool = True
    layer_norm: bool = False
    biases: Literal["config", "qkv", "all"] = "config"
    norms: int = 2
    qk_norm: Literal["none", "head", "all"] = "none"
    windows: Literal["none", "every", "from_layer", "first_of_two"] = "none"
    linear: Literal["none", "gated_delta", "mamba", "mamba_2", "kimi_delta"] = "none"
    output_gate: bool = False
    attention_sinks: bool = False
    router_bias: bool = False
    compressed: bool = False


A = Architecture
TIED = {"tie_word_embeddings": True}
GEMMA = {"head_dim": 256, **TIED}
GEMMA_3 = GEMMA | {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
    "sliding_window_pattern": 6,
    "sliding_window": 4096,
    "vocab_size": 262208,
    "torch_dtype": "bfloat16",
}
GEMMA_3N = GEMMA | {
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 15,
    "max_position_embeddings": 32768,
    "sliding_window": 512,
    "sliding_window_pattern": 5,
    "vocab_size": 262400,
    "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256,
    "altup_num_inputs": 4,
    "laurel_rank": 64,
}
GEMMA_4 = GEMMA | {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "vocab_size": 262144,
    "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256,
    "global_head_dim": 512,
}
DELTA = {
    "head_dim": 256,
    "partial_rotary_factor": 0.25,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "full_attention_interval": 4,
}
OLD = A(TIED, gated=False, layer_norm=True, biases="all")
QWEN_2 = A({"attention_bias": True}, biases="qkv", windows="from_layer")
QWEN_3 = A({"head_dim": 128}, biases="qkv", qk_norm="head", windows="from_layer")
# The mixtures' heads are as wide as the hidden state allows, unless their file says otherwise.
QWEN_3_MOE = A(biases="qkv", qk_norm="head", windows="from_layer")
QWEN_3_5 = A(DELTA, qk_norm="head", linear="gated_delta", output_gate=True)
DEEPSEEK = A(router_bias=True)
LLAMA = A({"max_position_embeddings": 2048})
PLAIN = A()

ARCHITECTURES: dict[str, Architecture] = {
    "": PLAIN,
    # One stack of attention and gated feed-forward layers, sized by the keys alone.
    **dict.fromkeys(
        (
            *("llama", "yi", "aquila", "internlm", "internlm2", "internlm3", "baichuan", "solar"),
            *("chatglm", "orion", "minicpm", "xverse", "decilm", "smollm3", "arcee", "seed_oss"),
            "nemotron-nas",
            *("ernie4_5", "hunyuan_v1_dense", "mimo", "exaone", "granite", "glm", "glm4", "olmo"),
            *("ministral3", "helium", "cwm", "iquestcoder", "granite_swa", "paddleocr_vl_text"),
            *("granite_docling_text", "granite4_vision_text"),
        ),
        LLAMA,
    ),
    "apertus": A(gated=False, qk_norm="head"),
    "arcee": A(gated=False),
    "nanochat": A(gated=False, norms=0),
    "persimmon": A(gated=False, layer_norm=True, biases="all", qk_norm="head"),
    "stablelm": A(layer_norm=True),
    "glm": A(),
    "glm4": A(norms=4),
    "glm_ocr_text": A(norms=4),
    "glm4v_text": A({"attention_bias": True}, biases="qkv", norms=4),
    "jais2": A(gated=False, layer_norm=True, biases="all"),
    "hyperclovax": A(norms=4),
    "vaultgemma": A(GEMMA | {"sliding_window": 4096}, windows="first_of_two"),
    "olmo": A(norms=0),
    "olmo2": A(qk_norm="all"),
    "olmo3": A(qk_norm="all"),
    "exaone4": A(qk_norm="head"),
    "nemotron": A(gated=False, layer_norm=True),
    "mistral": A(windows="every"),
    "ministral": A(windows="every"),
    "phi3": A(windows="every"),
    "phimoe": A(layer_norm=True),
    "phi": A(gated=False, layer_norm=True, biases="all", norms=1),
    "gemma": A(GEMMA),
    "gemma2": A(GEMMA | {"sliding_window": 4096}, norms=4, windows="first_of_two"),
    "gemma3_text": A(GEMMA_3, norms=4, qk_norm="head"),
    "gemma3n_text": A(GEMMA_3N, norms=4, qk_norm="head"),
    "gemma4_text": A(GEMMA_4, norms=4, qk_norm="head"),
    "gemma4_unified_text": A(
        GEMMA_4 | {"hidden_size_per_layer_input": 0, "sliding_window": 1024},
        norms=4,
        qk_norm="head",
    ),
    "cohere": A(TIED, norms=1),
    "cohere2": A(TIED, norms=1),
    # The first generation.
    "opt": OLD,
    "gpt2": OLD,
    "gpt_bigcode": OLD,
    "bloom": A(
        TIED | {"max_position_embeddings": 2048}, gated=False, layer_norm=True, biases="all"
    ),
    "gpt_neox": A(gated=False, layer_norm=True, biases="all"),
    "gptj": A(gated=False),
    "mpt": A(TIED, gated=False),
    "falcon": A(TIED | {"max_position_embeddings": 2048}, gated=False, layer_norm=True),
    "starcoder2": A(TIED, gated=False, layer_norm=True, biases="all", windows="every"),
    "qwen": A(biases="qkv"),
    # Qwen, with and without experts, with and without the gated delta rule.
    **dict.fromkeys(
        ("qwen2", "qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_vl_text"), QWEN_2
    ),
    "qwen2_moe": QWEN_2,
    **dict.fromkeys(("qwen2_5_omni_text", "qwen2_audio"), QWEN_2),
    **dict.fromkeys(("qwen3", "qwen3_vl_text", "qwen3_asr_text"), QWEN_3),
    **dict.fromkeys(("qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text"), QWEN_3_MOE),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), QWEN_3_5),
    # Mixtures of experts.
    "mixtral": A({"num_local_experts": 8, "num_experts_per_tok": 2}, windows="every"),
    "olmoe": A(qk_norm="all"),
    **dict.fromkeys(("granitemoe", "granitemoeshared", "granitemoe_swa"), PLAIN),
    **dict.fromkeys(("exaone_moe", "hy_v3"), A(qk_norm="head", router_bias=True)),
    "mellum": A(qk_norm="head"),
    "flex_olmo": A(qk_norm="all"),
    "solar_open": A(router_bias=True),
    "laguna": A(qk_norm="head", router_bias=True),
    "afmoe": A(norms=4, qk_norm="head", router_bias=True, output_gate=True),
    "beam": A(norms=4, qk_norm="head", output_gate=True),
    "muse_spark_text": A(norms=4),
    "muse_glimmer_text": A(norms=4, output_gate=True),
    "flint": A(qk_norm="head", attention_sinks=True),
    "molmo2_text": A(qk_norm="head"),
    "aria_text": PLAIN,
    "ernie4_5_vl_moe_text": A(TIED, router_bias=True),
    "step3p5": A(qk_norm="head", router_bias=True),
    **dict.fromkeys(("mimo_v2", "mimo_v2_flash"), A(router_bias=True)),
    **dict.fromkeys(("cohere2_moe", "cohere_compass_text"), A(TIED, norms=1)),
    # DBRX writes no more of its experts than differs from its class.
    "dbrx": A({"num_local_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 3584}),
    "kolibri1": A(norms=4, qk_norm="head"),
    "gpt_oss": A({"head_dim": 64, "attention_bias": True}, attention_sinks=True),
    "minimax_m2": A(
        {"head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8},
        qk_norm="all",
        router_bias=True,
    ),
    # Keys of an indexer stand beside keys and values (configs/minimax_m3.py).
    **dict.fromkeys(
        ("minimax_m3_text", "minimax_m3_vl_text"),
        A({"head_dim": 128, "vocab_size": 200064}, qk_norm="head", router_bias=True),
    ),
    "llama4_text": A(
        {
            "head_dim": 128,
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16384,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 1,
            "attention_chunk_size": 8192,
        }
    ),
    "glm4_moe": A(qk_norm="head", router_bias=True),
    "glm4v_moe_text": A(qk_norm="head", router_bias=True),
    "ernie4_5_moe": A(router_bias=True),
    "dots1": A(qk_norm="head", router_bias=True),
    "hunyuan_v1_moe": A(qk_norm="head"),
    "bailing_moe": PLAIN,
    # MLA, with an indexer or without.
    "deepseek": PLAIN,  # the first, of experts alone
    "deepseek_v2": A({"num_experts_per_tok": 6}),
    **dict.fromkeys(("minicpm3", "youtu"), PLAIN),  # see EXPANDED_KINDS
    **dict.fromkeys(("deepseek_v3", "kimi_k2", "kimi_k25", "glm4_moe_lite"), DEEPSEEK),
    **dict.fromkeys(("mistral4", "axk1"), DEEPSEEK),
    "hy_v4": A(
        {"index_n_heads": 16, "index_head_dim": 128},
        output_gate=True,
        attention_sinks=True,
        router_bias=True,
    ),
    # Two of attention and of dense feed-forward a layer, the first with the experts beside it.
    "longcat_flash": A(router_bias=True),
    "deepseek_v32": A(
        {"index_n_heads": 64, "index_head_dim": 128, "first_k_dense_replace": 3}, router_bias=True
    ),
    "glm_moe_dsa": A(
        {"index_n_heads": 32, "index_head_dim": 128, "first_k_dense_replace": 3}, router_bias=True
    ),
    "deepseek_v4": A(
        {
            "head_dim": 512,
            "qk_rope_head_dim": 64,
            "q_lora_rank": 1024,
            "o_groups": 8,
            "o_lora_rank": 1024,
            "sliding_window": 128,
            "index_n_heads": 64,
            "index_head_dim": 128,
            "hc_mult": 4,
            "num_hash_layers": 3,
        },
        attention_sinks=True,
        compressed=True,
    ),
    # Recurrence, alone or beside attention.
    "kimi_linear": A(linear="kimi_delta", router_bias=True),
    "olmo_hybrid": A(
        {
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 96,
            "linear_value_head_dim": 192,
            "linear_num_key_heads": 30,
            "linear_num_value_heads": 30,
        },
        qk_norm="all",
        linear="gated_delta",
    ),
    "mamba": A(TIED, norms=1, linear="mamba"),
    "falcon_mamba": A(TIED, norms=1, linear="mamba"),
    "mamba2": A({"n_groups": 8, "state_size": 128}, norms=1, linear="mamba_2"),
    "jamba": A({"expert_layer_offset": 1}, linear="mamba"),
    "bamba": A(linear="mamba_2"),
    "granitemoehybrid": A(linear="mamba_2"),
    "falcon_h1": A(linear="mamba_2"),
    "nemotron_h": A({"mamba_ssm_cache_dtype": "float32"}, gated=False, norms=1, linear="mamba_2"),
    "zamba2": A(TIED, linear="mamba_2"),
    "lfm2": A(TIED, qk_norm="head"),
    "lfm2_moe": A(TIED, qk_norm="head", router_bias=True),
}

# Latent attention (MLA) whose keys and values vLLM keeps as wide as attention takes them
# (model_executor/models/minicpm3.py; Youtu is served by transformers' class: transformers/base.py).
EXPANDED_KINDS = ("minicpm3", "youtu")

# Keys that give away what no line above describes, whatever the model_type says.
STRANGE_KEYS = ("attn_type_list", "ssm_cfg", "cross_attention_layers")
REMEDY = "write an equivalent config.json of a kind that is (llama, gemma3_text, ...)"


def architecture(kind: str, table: Mapping[str, Any], where: str) -> Architecture:
    """The architecture of a model_type; InputError for one that is not supported."""
    strange = next((key for key in STRANGE_KEYS if table.get(key) is not None), None)
    if kind in ARCHITECTURES and strange is None:
        return ARCHITECTURES[kind]
    raise InputError(
        "this architecture is not understood",
        where=where,
        value=f"model_type {kind!r}" + (f" with {strange}" if strange else ""),
        remedy=REMEDY,
    )
