"""Sizes of KV caches as llama.cpp made them (sizing.json: recorded, real shapes and settings), and
as the logs of users print them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kvsim.llamacpp.sizes import (
    ContextSettings,
    KVLayer,
    KVShape,
    cache_sizes,
    context_of,
    log_lines,
)
from kvsim.plumbing.errors import InputError

ROWS = json.loads((Path(__file__).parent / "sizing.json").read_text())["rows"]


def shape_of(table: dict[str, Any]) -> KVShape:
    """The layers of a recorded shape, its windows in words."""
    said, elements = table["windowed"], table["kv"] * table["hd"]
    windowed = {
        "no layer": lambda at: False,
        "layers 0, 2, 4, ...": lambda at: at % 2 == 0,
        "all but every 6th": lambda at: at % 6 < 5,
    }[said]
    layers = (KVLayer(elements, elements, windowed(at)) for at in range(table["layers"]))
    return KVShape(tuple(layers), table.get("window", 0))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['shape']}-{row['settings']['n_ctx']}")
def test_llamacpp_cache_sizes_equal_recorded_ones_to_the_byte(row: dict[str, Any]) -> None:
    table, expected = dict(row["settings"]), row["expected"]
    settings = ContextSettings(**{**table, "flash_attn": table.get("flash_attn") != "off"})
    context = context_of(settings)
    if "error" in expected:
        with pytest.raises(InputError, match="quantised V cache needs flash attention"):
            cache_sizes(shape_of(row["kv_shape"]), settings, context)
        return
    sizes = cache_sizes(shape_of(row["kv_shape"]), settings, context)
    found = {
        "n_ctx": context.n_ctx,
        "n_batch": context.n_batch,
        "n_ubatch": context.n_ubatch,
        "log": log_lines(sizes, settings),
    }
    for name, size in (("base", sizes.base), ("swa", sizes.windowed)):
        if size is not None:
            found[name] = {
                "cells": size.cells,
                "streams": size.buffers,
                "layers": size.layers,
                "n_swa": size.window,
                "k_bytes": size.k_bytes,
                "v_bytes": size.v_bytes,
            }
    assert found == expected


@pytest.mark.parametrize(
    ("layers", "elements", "settings", "mib"),
    [
        # ollama/ollama#10735: granite3.3:2b, 20 parallel of 32,768.
        (40, 512, ContextSettings(655360, 20), 51200.0),
        (40, 512, ContextSettings(65536, 2), 5120.0),  # and on a laptop
        # ollama/ollama#12927: sqlcoder-7b, four of 16,384.
        (32, 4096, ContextSettings(65536, 4), 32768.0),
        # ggml-org/llama.cpp#8101: an 8B with 1,048,576 tokens.
        (32, 1024, ContextSettings(1048576, kv_unified=True), 131072.0),
        # ollama/ollama#6276: llama3.1 8b at 32K, q4_0.
        (32, 1024, ContextSettings(32768, type_k="q4_0", type_v="q4_0"), 1152.0),
        # tetherto/qvac#1276: Llama-3.2-1B, q8_0.
        (16, 512, ContextSettings(2048, type_k="q8_0", type_v="q8_0"), 34.0),
    ],
)
def test_llamacpp_cache_sizes_equal_users_logs(
    layers: int, elements: int, settings: ContextSettings, mib: float
) -> None:
    shape = KVShape((KVLayer(elements, elements),) * layers)
    assert cache_sizes(shape, settings, context_of(settings)).num_bytes == mib * (1 << 20)
