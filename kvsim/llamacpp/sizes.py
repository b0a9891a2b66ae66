"""Size of llama.cpp's KV cache: cells, buffers, bytes, and the lines of its log.

From src/llama-context.cpp, llama-kv-cache.cpp and llama-kv-cache-iswa.cpp. All of it is allocated
when a model is loaded; nothing grows later.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.llamacpp.types import CacheType, is_quantized, row_bytes
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import MIB, ceil_div

PADDING = 256  # cells: sizes are multiples of it


def padded(cells: int) -> int:
    """`cells` rounded up to a multiple of 256."""
    return ceil_div(cells, PADDING) * PADDING


class KVLayer(NamedTuple):
    """K and V of one token in one layer.

    k_elements, v_elements: KV heads * head size (V: 0 if only K is stored). windowed: only a window
    of tokens is stored.
    """

    k_elements: int
    v_elements: int
    windowed: bool = False


class KVShape(NamedTuple):
    """The layers of a model with KV. window: tokens of the window of windowed layers; 0: no layer
    has one.
    """

    layers: tuple[KVLayer, ...]
    window: int = 0


class ContextSettings(NamedTuple):
    """Requested settings of a context, by the names of llama.h.

    n_ctx: tokens; 0 for the trained length. flash_attn: "auto" counts as on.
    """

    n_ctx: int = 0
    n_seq_max: int = 1
    n_batch: int = 2048
    n_ubatch: int = 512
    kv_unified: bool = False
    swa_full: bool = False
    type_k: CacheType = "f16"
    type_v: CacheType = "f16"
    flash_attn: bool = True


class Context(NamedTuple):
    """Sizes of a context.

    n_ctx: tokens in all. n_ctx_seq: most tokens of one sequence, and cells of each buffer. buffers:
    number of buffers.
    """

    n_ctx: int
    n_ctx_seq: int
    n_batch: int
    n_ubatch: int
    buffers: int


class CacheSize(NamedTuple):
    """Size of one cache. cells: cells of each of its `buffers` buffers."""

    cells: int
    buffers: int
    layers: int
    window: int
    k_bytes: int
    v_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes of K and V together."""
        return self.k_bytes + self.v_bytes


class CacheSizes(NamedTuple):
    """The sizes of a model's KV caches. base: of the layers with full attention. windowed: of the
    layers with sliding windows; None if there are none.
    """

    base: CacheSize
    windowed: CacheSize | None

    @property
    def num_bytes(self) -> int:
        """Bytes of the full-attention cache and of the sliding-window cache together."""
        return self.base.num_bytes + (self.windowed.num_bytes if self.windowed else 0)


def context_of(settings: ContextSettings, trained_tokens: int = 0) -> Context:
    """The context that llama.cpp makes of these settings. trained_tokens: used if n_ctx is 0.

    If each sequence has a buffer, each buffer is rounded up, so the sum may exceed what was asked.
    """
    asked = settings.n_ctx or trained_tokens
    if not asked:
        raise InputError("no context length", where="n_ctx", remedy="give n_ctx")
    n_batch = min(asked, settings.n_batch)
    n_ubatch = min(n_batch, settings.n_ubatch or n_batch)
    n_ctx = padded(asked)
    if settings.kv_unified:
        return Context(n_ctx, n_ctx, n_batch, n_ubatch, 1)
    n_ctx_seq = padded(n_ctx // settings.n_seq_max)
    total = n_ctx_seq * settings.n_seq_max
    return Context(total, n_ctx_seq, n_batch, n_ubatch, settings.n_seq_max)


def window_cells(window: int, settings: ContextSettings, context: Context) -> int:
    """Number of cells in each buffer of the window layers."""
    if settings.swa_full:
        return context.n_ctx_seq
    sequences = settings.n_seq_max if settings.kv_unified else 1
    return padded(min(context.n_ctx_seq, window * sequences + context.n_ubatch))


def cache_sizes(shape: KVShape, settings: ContextSettings, context: Context) -> CacheSizes:
    """Sizes of a model's caches; InputError for a V type that needs flash attention without it."""
    if is_quantized(settings.type_v) and not settings.flash_attn:
        raise InputError(
            "a quantised V cache needs flash attention",
            where="type_v",
            value=settings.type_v,
            remedy='flash_attn = "on" or "auto", or type_v = "f16"',
        )
    base = [layer for layer in shape.layers if not (layer.windowed and shape.window)]
    rest = [layer for layer in shape.layers if layer.windowed and shape.window]
    size = _cache(base, context.n_ctx_seq, 0, settings, context)
    if not rest:
        return CacheSizes(size, None)
    cells = window_cells(shape.window, settings, context)
    return CacheSizes(size, _cache(rest, cells, shape.window, settings, context))


def layer_bytes(layer: KVLayer, settings: ContextSettings) -> tuple[int, int]:
    """(bytes of K, bytes of V) of one token in one layer."""
    return (
        row_bytes(settings.type_k, layer.k_elements, "type_k"),
        row_bytes(settings.type_v, layer.v_elements, "type_v"),
    )


def _cache(
    layers: Sequence[KVLayer],
    cells: int,
    window: int,
    settings: ContextSettings,
    context: Context,
) -> CacheSize:
    rows = [layer_bytes(layer, settings) for layer in layers]
    all_cells = cells * context.buffers
    k_bytes, v_bytes = (all_cells * sum(row[at] for row in rows) for at in (0, 1))
    return CacheSize(cells, context.buffers, len(rows), window, k_bytes, v_bytes)


def log_lines(sizes: CacheSizes, settings: ContextSettings) -> list[str]:
    """The lines that llama.cpp logs about these caches."""
    lines = []
    for size, name in ((sizes.base, "non-SWA"), (sizes.windowed, "    SWA")):
        if size is None:
            continue
        if sizes.windowed is not None:
            lines.append(
                f"llama_kv_cache_iswa: creating {name} KV cache, size = {size.cells} cells"
            )
        k_mib, v_mib = size.k_bytes / MIB, size.v_bytes / MIB
        lines.append(
            f"llama_kv_cache: size = {k_mib + v_mib:7.2f} MiB ({size.cells:6d} cells, "
            f"{size.layers:3d} layers, {settings.n_seq_max:2d}/{size.buffers} seqs), "
            f"K ({settings.type_k}): {k_mib:7.2f} MiB, V ({settings.type_v}): {v_mib:7.2f} MiB"
        )
    return lines
