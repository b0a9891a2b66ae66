"""Hugging Face's config.json, in the dialects people really have, as the fields of a Model.

Keys and defaults follow the configuration classes of Hugging Face transformers; a checkpoint's
file leaves out what its class defaults to, so the defaults that matter stand in DEFAULTS.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvsim.model.hf_keys import Keys
from kvsim.model.hf_layers import decoder_layers, norm_params
from kvsim.model.weights import DTYPE_BYTES, WeightFormat
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import read_object

INNER_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")
# Architectures that would be misread as plain attention, and keys that give others away.
UNSUPPORTED = (
    *("t5", "mt5", "bart", "whisper", "bert", "roberta"),
    *("llama4", "llama4_text", "gemma3n", "gemma3n_text", "gpt_neo", "recurrent_gemma"),
    *("mamba", "mamba2", "falcon_mamba", "rwkv", "falcon_h1", "zamba", "zamba2", "lfm2"),
)
UNSUPPORTED_KEYS = (
    *("attn_type_list", "block_configs", "hybrid_override_pattern"),
    *("ssm_state_size", "state_size", "ssm_cfg"),
)
UNSUPPORTED_REMEDY = "write an equivalent config.json of a supported kind (llama, gemma3, ...)"

GEMMA = {"head_dim": 256, "tie_word_embeddings": True}
DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma": GEMMA,
    "gemma2": GEMMA | {"sliding_window": 4096},
    "gemma3_text": GEMMA
    | {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131072,
        "sliding_window_pattern": 6,
        "sliding_window": 4096,
        "vocab_size": 262208,
        "torch_dtype": "bfloat16",
    },
    "opt": {"tie_word_embeddings": True},
    "gpt2": {"tie_word_embeddings": True},
    "gpt_bigcode": {"tie_word_embeddings": True},
    "bloom": {"tie_word_embeddings": True, "max_position_embeddings": 2048},
    "mpt": {"tie_word_embeddings": True},
    "falcon": {"tie_word_embeddings": True, "max_position_embeddings": 2048},
    "starcoder2": {"tie_word_embeddings": True},
    "cohere": {"tie_word_embeddings": True},
    "cohere2": {"tie_word_embeddings": True},
    "qwen2": {"attention_bias": True},
    "qwen2_moe": {"attention_bias": True},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "gpt_oss": {"head_dim": 64, "attention_bias": True},
    "llama": {"max_position_embeddings": 2048},
}


def fields_from_hf(config: Mapping[str, Any] | Path, name: str | None) -> dict[str, Any]:
    """The constructor arguments of a Model; InputError names the file and the key at fault."""
    if isinstance(config, Path):
        path = config / "config.json" if config.is_dir() else config
        where, content = str(path), read_object(path)
        called = name or str(content.get("_name_or_path") or path.resolve().parent.name)
    else:
        content = dict(config)
        called = name or str(content.get("_name_or_path") or content.get("model_type") or "model")
        where = called
    keys = _language_part(content, where)
    dtype = _dtype(keys)
    quantization = keys.get("quantization_config", default=None)
    layers = decoder_layers(keys, dtype)
    hidden = keys.integer("hidden_size", "n_embd", "d_model", "n_embed")
    return {
        "name": called,
        "hidden_size": hidden,
        "vocab_size": keys.integer("vocab_size", "padded_vocab_size"),
        "max_position_embeddings": _max_positions(keys),
        "torch_dtype": dtype,
        "layers": layers,
        "weight_format": WeightFormat.from_hf(quantization, dtype, where)
        if quantization
        else WeightFormat.plain(dtype),
        "tie_word_embeddings": bool(keys.get("tie_word_embeddings", default=False)),
        "extra_params": _extra_params(keys, hidden),
        "source": where,
        "kind": keys.kind,
    }


def _language_part(content: dict[str, Any], where: str) -> Keys:
    """The keys of the text decoder; a multimodal config keeps them in an inner table."""
    table = content
    for inner in INNER_CONFIGS:
        if isinstance(table.get(inner), dict):
            shared = {
                key: table[key]
                for key in ("torch_dtype", "dtype", "quantization_config", "tie_word_embeddings")
                if key in table
            }
            table = shared | table[inner]
    kind = str(table.get("model_type", content.get("model_type", "")))
    strange = next((key for key in UNSUPPORTED_KEYS if table.get(key) is not None), None)
    if content.get("is_encoder_decoder") or kind in UNSUPPORTED or strange:
        raise InputError(
            "this architecture's KV cache is not modelled",
            where=where,
            value=f"model_type {kind!r}" + (f" with {strange}" if strange else ""),
            remedy=UNSUPPORTED_REMEDY,
        )
    given = {key: value for key, value in table.items() if value is not None}
    nulls = {key: None for key, value in table.items() if value is None}
    return Keys(nulls | DEFAULTS.get(kind, {}) | given | _explicit_nulls(nulls), kind, where)


def _explicit_nulls(nulls: dict[str, None]) -> dict[str, None]:
    """A window written as null is switched off, not left to the default."""
    return {key: None for key in nulls if key == "sliding_window"}


def _dtype(keys: Keys) -> str:
    written = keys.get("torch_dtype", "dtype", default=None)
    dtype = "float16" if written is None else str(written).removeprefix("torch.")
    if dtype not in DTYPE_BYTES:
        raise InputError(
            "unknown torch_dtype",
            where=keys.where,
            value=repr(written),
            limit=", ".join(DTYPE_BYTES),
        )
    # A float32 checkpoint is served in half precision, as vLLM's dtype "auto" does.
    return "float16" if dtype == "float32" else dtype


def _max_positions(keys: Keys) -> int:
    """The longest sequence; a rope scaling that is not yet counted in multiplies it."""
    plain = keys.integer("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
    scaling = keys.get("rope_scaling", default=None)
    if not isinstance(scaling, dict) or keys.kind.startswith("gemma3"):
        return plain
    kind = scaling.get("rope_type", scaling.get("type"))
    factor = scaling.get("factor", 1)
    if kind in ("linear", "dynamic"):
        return int(plain * factor)
    if kind == "yarn" and "original_max_position_embeddings" in scaling:
        return int(scaling["original_max_position_embeddings"] * factor)
    return plain


def _extra_params(keys: Keys, hidden: int) -> int:
    """Final norm, and learned position embeddings where the architecture has them."""
    positions = {
        "opt": 2,  # OPT's table starts with two rows for padding
        "gpt2": 0,
        "gpt_bigcode": 0,
    }
    total = norm_params(keys, hidden)
    if keys.kind in positions:
        rows = keys.integer("max_position_embeddings", "n_positions") + positions[keys.kind]
        total += rows * hidden
    if keys.kind == "bloom":  # a norm over the embeddings
        total += 2 * hidden
    return total
