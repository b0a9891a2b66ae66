"""Build an empty llama.cpp KV cache for a model and context settings."""

from collections.abc import Sequence

from kvsim.llamacpp.sizes import (
    Context,
    ContextSettings,
    KVLayer,
    KVShape,
    layer_bytes,
    window_cells,
)
from kvsim.memory.cells.cache import CellCache, CurrentCache
from kvsim.memory.cells.layer_cache import Cache, LayerCost


def build_cache(shape: KVShape, settings: ContextSettings, context: Context) -> CellCache:
    """An empty KV cache: a `Cache` for the layers of full attention, another for layers with a
    window.
    """

    def cost(layers: Sequence[KVLayer]) -> LayerCost:
        rows = sum(sum(layer_bytes(layer, settings)) for layer in layers)
        return LayerCost(len(layers), rows)

    base = [layer for layer in shape.layers if not (layer.windowed and shape.window)]
    rest = [layer for layer in shape.layers if layer.windowed and shape.window]
    windowed = None
    if rest:
        cells = window_cells(shape.window, settings, context)
        windowed = Cache(cells, context.buffers, cost(rest), shape.window)
    return CurrentCache(
        settings.n_seq_max,
        context.n_ubatch,
        Cache(context.n_ctx_seq, context.buffers, cost(base)),
        windowed,
    )
