"""Convert a config.json, or its content, to the fields of a Model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvsim.model.hf.architecture import REMEDY, architecture
from kvsim.model.hf.decoder import decoder_layers
from kvsim.model.hf.extras import model_extras
from kvsim.model.hf.keys import Keys
from kvsim.model.hf.kv_dtype import AUTO, stored_kv_dtype
from kvsim.model.hf.rotary import has_mrope, rotary_elements
from kvsim.model.hf.target_reader import target_reader
from kvsim.model.hf.towers import qwen_tower, tower_params, vision
from kvsim.model.hf.well_formed import MOST, check_kinds
from kvsim.model.weights import DTYPE_BYTES, WeightFormat
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import read_object

INNER_CONFIGS = (
    *("text_config", "llm_config", "language_config", "thinker_config"),
    "transformer_layer_config",  # of a drafter, as the speculators library writes it
)
# An outer model_type that says nothing of the decoder inside, where the inner table names none.
OUTER_KINDS = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "step3p7": "step3p5",
    "llama4": "llama4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "mistral3": "mistral",
    "minimax_m3_vl": "minimax_m3_text",
    "cohere_compass": "cohere_compass_text",
    "granite4_vision": "granite4_vision_text",
    "glm_ocr": "glm_ocr_text",
    "muse_glimmer": "muse_glimmer_text",
    "glm4v": "glm4v_text",
    "glm46v": "glm4v_text",
    "llava": "llama",
    "llava_next": "llama",
    "paligemma": "gemma",
}
# Keys of inner tables by the names they have elsewhere, by model_type.
INNER_KEYS = {
    "dbrx": {
        "attn_config": {"num_key_value_heads": "kv_n_heads"},
        "ffn_config": {
            "moe_intermediate_size": "ffn_hidden_size",
            "num_local_experts": "moe_num_experts",
            "num_experts_per_tok": "moe_top_k",
        },
    }
}
# What a purely recurrent model, which has no positions, is taken to reach.
UNBOUNDED = 1 << 20


def fields_from_hf(config: Mapping[str, Any] | Path, name: str | None) -> dict[str, Any]:
    """The constructor arguments of a Model; InputError names the file and the key at fault."""
    if isinstance(config, Path):
        path = config / "config.json" if config.is_dir() else config
        where, content = str(path), read_object(path, constants=True)
        called = name or str(content.get("_name_or_path") or path.resolve().parent.name)
    else:
        content = dict(config)
        called = name or str(content.get("_name_or_path") or content.get("model_type") or "model")
        where = called
    check_kinds(content, where)
    keys = _language_part(content, where)
    dtype = _dtype(keys)
    quantization = keys.get("quantization_config", default=None)
    if quantization and keys.get("expert_dtype", default=None) is not None:
        quantization = {"expert_dtype": keys.get("expert_dtype")} | quantization
    layers = decoder_layers(keys, dtype)
    longest = _max_positions(keys)
    return {
        "name": called,
        "hidden_size": keys.hidden,
        "vocab_size": keys.integer("vocab_size", "padded_vocab_size"),
        "max_position_embeddings": longest,
        "torch_dtype": dtype,
        "layers": layers,
        "weight_format": _weight_format(quantization, dtype, len(layers), where),
        "tie_word_embeddings": bool(keys.get("tie_word_embeddings", default=False)),
        "extra_params": model_extras(keys, len(layers)),
        "tower_params": tower_params(content, keys.hidden),
        "tower": qwen_tower(content, keys.kind),
        "vision": vision(content),
        "rotary_elements": rotary_elements(keys, longest),
        "mrope": has_mrope(keys),
        "source": where,
        "kind": keys.kind,
        "hidden_streams": keys.integer("hc_mult") if keys.architecture.compressed else 1,
        "kv_cache_dtype": stored_kv_dtype(quantization) if quantization else AUTO,
        "target_reader": target_reader(content, keys),
    }


def _weight_format(
    quantization: Mapping[str, Any] | None, dtype: str, layers: int, where: str
) -> WeightFormat:
    if not quantization:
        return WeightFormat.plain(dtype)
    from kvsim.model.hf.quantization import weight_format  # most built-in models are not quantised

    return weight_format(quantization, dtype, layers, where)


def _language_part(content: dict[str, Any], where: str) -> Keys:
    """The keys of the text decoder, which a multimodal config has in an inner table."""
    table = content
    for inner in INNER_CONFIGS:
        if isinstance(table.get(inner), dict):
            shared = {
                key: table[key]
                for key in ("torch_dtype", "dtype", "quantization_config", "tie_word_embeddings")
                if table.get(key) is not None
            }
            own = {key: value for key, value in table[inner].items() if value is not None}
            table = table[inner] | shared | own
    written = str(table.get("model_type") or content.get("model_type") or "")
    kind = OUTER_KINDS.get(written, written)
    if content.get("is_encoder_decoder"):
        raise InputError(
            "encoder-decoder models are not modelled",
            where=where,
            value=f"model_type {kind!r}",
            remedy=REMEDY,
        )
    for inner, names in INNER_KEYS.get(kind, {}).items():
        held = table.get(inner) or {}
        table = table | {name: held[key] for name, key in names.items() if key in held}
    about = architecture(kind, table, where)
    # A window of 0 tokens is none, as a null is (vLLM's config/model.py).
    if table.get("sliding_window") == 0:
        table = {**table, "sliding_window": None}
    given = {key: value for key, value in table.items() if value is not None}
    nulls = {key: None for key, value in table.items() if value is None}
    return Keys(nulls | dict(about.defaults) | given | _explicit_nulls(nulls), kind, where, about)


def _explicit_nulls(nulls: dict[str, None]) -> dict[str, None]:
    """Windows and chunks that the file sets to null, which disables them instead of using the
    default.
    """
    return {key: None for key in nulls if key in ("sliding_window", "attention_chunk_size")}


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
    """The longest sequence in tokens, multiplied by a rope scaling that is not yet included."""
    names = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
    unbounded = UNBOUNDED if keys.kind in ("mamba", "mamba2", "falcon_mamba") else None
    plain = keys.integer(*names, "model_max_length", default=unbounded)
    scaling = keys.get("rope_scaling", "rope_parameters", default=None)
    if not isinstance(scaling, dict) or keys.kind.startswith(("gemma3", "gemma4")):
        return plain
    kind = scaling.get("rope_type", scaling.get("type"))
    factor = scaling.get("factor") or 1
    longest = plain
    if kind in ("linear", "dynamic"):
        longest = int(plain * factor)
    if kind == "yarn" and "original_max_position_embeddings" in scaling:
        longest = int((scaling["original_max_position_embeddings"] or plain) * factor)
    if not 1 <= longest <= MOST:
        raise InputError(
            "the rope scaling extends positions out of bounds",
            where=f"{keys.where}: rope_scaling",
            value=longest,
            limit=MOST,
        )
    return longest
