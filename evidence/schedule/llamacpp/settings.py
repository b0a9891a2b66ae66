"""Settings of a recorded context, and the small models that were used for recording."""

from typing import Any, Literal

from pydantic import Field

from kvsim.llamacpp.sizes import (
    CacheSizes,
    Context,
    ContextSettings,
    KVLayer,
    KVShape,
    cache_sizes,
    context_of,
)
from kvsim.llamacpp.types import CacheType
from kvsim.memory.cells.build import build_cache
from kvsim.memory.cells.cache import CellCache
from kvsim.memory.cells.field import CellField, CellRun
from kvsim.plumbing.options import Options

LARGEST_CONTEXT = 1 << 24  # tokens
_LAYER = KVLayer(32, 32)
# Two layers, one KV head of 32 each; layer 0 of the second keeps a window of 64 tokens.
SHAPES = {
    "tiny-llama": KVShape((_LAYER, _LAYER)),
    "tiny-swa": KVShape((_LAYER._replace(windowed=True), _LAYER), 64),
}
ModelName = Literal["tiny-llama", "tiny-swa"]


class Recorded(Options):
    """Settings of a context, under the names of llama.h."""

    n_ctx: int = Field(0, ge=0, le=LARGEST_CONTEXT)
    n_seq_max: int = Field(1, ge=1, le=256)
    n_batch: int = Field(2048, ge=1)
    n_ubatch: int = Field(512, ge=1)
    kv_unified: bool = False
    swa_full: bool = False
    type_k: CacheType = "f16"
    type_v: CacheType = "f16"

    def context_settings(self) -> ContextSettings:
        """The settings in the form from which sizes are computed."""
        return ContextSettings(**{name: getattr(self, name) for name in Recorded.model_fields})


class RecordedContext:
    """The context that these settings give for a model, and its empty cache."""

    def __init__(self, settings: ContextSettings, model: ModelName) -> None:
        self.shape = SHAPES[model]
        self.context: Context = context_of(settings, trained_tokens=4096)
        self.sizes: CacheSizes = cache_sizes(self.shape, settings, self.context)
        self.cache: CellCache = build_cache(self.shape, settings, self.context)

    def geometry(self) -> dict[str, Any]:
        """The context's sizes, in the form of recordings."""
        context = self.context
        named = [("base", self.sizes.base), ("swa", self.sizes.windowed)]
        caches = {
            name: {
                "cells": size.cells,
                "streams": size.buffers,
                "layers": size.layers,
                "n_swa": size.window,
                "k_bytes": size.k_bytes,
                "v_bytes": size.v_bytes,
            }
            for name, size in named
            if size is not None
        }
        batches = {"n_batch": context.n_batch, "n_ubatch": context.n_ubatch}
        return {**caches, "n_ctx": context.n_ctx, **batches}

    def cells(self) -> dict[str, Any]:
        """All cells, in the form of recordings."""
        names = ("base", "swa")[: len(self.cache.caches)]
        return {
            name: [buffer_cells(field) for field in cache.fields]
            for name, cache in zip(names, self.cache.caches, strict=True)
        }


def buffer_cells(field: CellField) -> dict[str, Any]:
    """The cells of one buffer, in the form of recordings."""
    return {
        "head": field.head,
        "used": field.used,
        "top": field.top,
        "runs": written(field.runs()),
    }


def written(runs: list[CellRun]) -> list[list[Any]]:
    """Runs of cells, in the form of recordings."""
    return [[run.first, run.num, list(run.seqs), run.pos] for run in runs]
