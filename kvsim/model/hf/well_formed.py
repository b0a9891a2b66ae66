"""Checks that each value of a config.json has the type that its key asks for: once, before any
of it is used.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kvsim.plumbing.errors import InputError

MOST = 10**9  # of any count; beyond it a figure is a mistake
LISTS = (
    *("layer_types", "layers_block_type", "full_attn_idxs", "full_attn_layers", "moe_layers"),
    *("attn_layer_indices", "mlp_layer_types", "mlp_only_layers", "indexer_types"),
)
TABLES = (
    *("rope_scaling", "quantization_config", "linear_attn_config", "attn_config"),
    *("config_groups", "weights", "rope_parameters"),
)
COUNTS = (
    *("max_position_embeddings", "original_max_position_embeddings"),
    *("v_head_dim", "q_lora_rank", "bits", "num_bits"),
    "index_topk_freq",
)
NUMBERS = ("factor", "block_ffn_dim_multiplier", "mlp_ratio", "partial_rotary_factor")


def check_kinds(table: Mapping[str, Any], where: str) -> None:
    """Raise InputError at the first value of a wrong type, in nested tables too."""
    for key, value in table.items():
        if value is None:
            continue
        for names, right, meant in _KINDS:
            if key in names and not right(value):
                raise InputError(f"not {meant}", where=f"{where}: {key}", value=value)
        if isinstance(value, Mapping):
            check_kinds(value, f"{where}: {key}")
        elif isinstance(value, int) and abs(value) > MOST and key in _MEASURED:
            raise InputError("too large", where=f"{where}: {key}", value=value, limit=MOST)


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= MOST


def _is_whole(value: object) -> bool:
    return type(value) is int and abs(value) <= MOST


def _holds_tables(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        inner is None or isinstance(inner, Mapping) for inner in value.values()
    )


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and 0 < value <= MOST  # type: ignore[operator]  # a number


_KINDS: tuple[tuple[tuple[str, ...], Callable[[object], bool], str], ...] = (
    (LISTS, lambda value: isinstance(value, list), "a list"),
    (TABLES, lambda value: isinstance(value, Mapping), "a table"),
    (COUNTS, _is_count, "a whole number >= 1"),
    (NUMBERS, _is_number, "a number above 0"),
    (("sliding_window",), lambda value: value == 0 or _is_count(value), "a whole number"),
    (("group_size", "index_skip_topk_offset"), _is_whole, "a whole number"),
    (("index_topk_pattern",), lambda value: isinstance(value, str | list), "a pattern"),
    (("config_groups",), _holds_tables, "a table of tables"),
)
_MEASURED = (
    *("hidden_size", "embed_dim", "width", "num_hidden_layers", "depth", "layers", "num_layers"),
    *("intermediate_size", "mlp_dim", "patch_size", "spatial_merge_size", "merge_kernel_size"),
    *("d_model", "encoder_layers", "conf_num_hidden_layers"),
)
