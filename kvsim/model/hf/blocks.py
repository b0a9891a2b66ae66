"""Configs that describe each layer by itself, as a search found them (Nemotron-NAS, DeciLM's
block_configs).
"""

from typing import Any

from kvsim.model.hf.keys import Keys
from kvsim.plumbing.errors import InputError


def block_of(keys: Keys, index: int, part: str) -> dict[str, Any]:
    """The "attention" or "ffn" table of a layer; InputError if it is not a table."""
    blocks = keys.get("block_configs")
    table = blocks[index].get(part) if index < len(blocks) else None
    if not isinstance(table, dict) or table.get("replace_with_linear"):
        raise InputError(
            "a block with unknown parts",
            where=f"{keys.where}: block_configs[{index}].{part}",
            value=table,
            limit="no_op, or n_heads_in_group and ffn_mult",
        )
    return table


def has_part(keys: Keys, index: int, part: str) -> bool:
    """Whether layer `index` has the part "attention" or "ffn"."""
    if keys.get("block_configs", default=None) is None:
        return True
    return not block_of(keys, index, part).get("no_op")


def block_width(keys: Keys, index: int) -> int:
    """Width of a feed-forward part (vLLM, models/nemotron_nas.py)."""
    table = block_of(keys, index, "ffn")
    if table.get("intermediate_size") is not None:
        return int(table["intermediate_size"])
    width = int(2 * float(table["ffn_mult"]) * keys.hidden / 3)
    return width if width % 256 == 0 else width + 256 - width % 256
