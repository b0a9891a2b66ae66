"""The number of KV cells that fit in a pool, and the empty cache of that size."""

from typing import NamedTuple

from kvsim.layout import KVLayout
from kvsim.llamacpp.sizes import PADDING, padded
from kvsim.memory.cells.cache import CellCache, CurrentCache
from kvsim.memory.cells.layer_cache import Cache, LayerCost
from kvsim.memory.cells.older import OlderCache
from kvsim.plumbing.errors import InputError

STATE_LAYER_BYTES = 24  # of a saved state, beside its rows


class CellPlan(NamedTuple):
    """Buffer sizes of a pool. cells, window_cells: cells of each buffer; token_bytes, window_bytes:
    bytes of one cell. window: tokens in the window of layers with one, 0 without such layers.
    defrag_thold: threshold of the March 2025 version; None for the current version.
    """

    buffers: int
    cells: int
    window_cells: int
    token_bytes: int
    window_bytes: int
    layers: int
    window_layers: int
    window: int
    n_ubatch: int
    num_sequences: int
    defrag_thold: float | None

    @property
    def num_bytes(self) -> int:
        """Bytes of all cells."""
        each = self.cells * self.token_bytes + self.window_cells * self.window_bytes
        return each * self.buffers

    def cache(self) -> CellCache:
        """An empty cache of this plan."""
        if self.defrag_thold is not None:
            return OlderCache(self.cells, self.n_ubatch, self.layers, self.defrag_thold)
        base = Cache(self.cells, self.buffers, LayerCost(self.layers, self.token_bytes))
        windowed = None
        if self.window:
            cost = LayerCost(self.window_layers, self.window_bytes)
            windowed = Cache(self.window_cells, self.buffers, cost, self.window)
        return CurrentCache(self.num_sequences, self.n_ubatch, base, windowed)


def plan_cells(
    capacity_bytes: int,
    layout: KVLayout,
    num_sequences: int,
    n_ubatch: int,
    *,
    unified: bool,
    swa_full: bool,
    defrag_thold: float | None,
) -> CellPlan:
    """The largest buffers of cells that fit in capacity_bytes.

    InputError for a pool without room for the smallest, and for layers with state or windows that
    llama.cpp's cells do not hold.
    """
    if any(group.state_bytes for group in layout.groups):
        raise InputError(
            "recurrent states have no cells",
            where="allocator.kind",
            value="cells",
            remedy='kind = "paged" or "radix"',
        )
    windows = [] if swa_full else [g for g in layout.groups if g.window_tokens is not None]
    sizes = {group.window_tokens for group in windows}
    if len(sizes) > 1:
        raise InputError(
            "a field of cells has one size of windows",
            where="allocator.kind",
            value=f"windows of {', '.join(map(str, sorted(filter(None, sizes))))} tokens",
            remedy="swa_full = true keeps every token",
        )
    window = next(iter(sizes), None) or 0
    base = [group for group in layout.groups if group not in windows]
    made = CellPlan(
        1 if unified else num_sequences,
        0,
        0,
        sum(group.bytes_per_token for group in base),
        sum(group.bytes_per_token for group in windows),
        sum(group.layers for group in base),
        sum(group.layers for group in windows),
        window,
        n_ubatch,
        num_sequences,
        defrag_thold,
    )

    def with_cells(paddings: int) -> CellPlan:
        cells = paddings * PADDING
        kept = window * (num_sequences if unified else 1) + n_ubatch
        return made._replace(cells=cells, window_cells=padded(min(cells, kept)) if window else 0)

    low, high = 0, capacity_bytes // (made.token_bytes + made.window_bytes or 1) // PADDING + 1
    if window and made.token_bytes:
        high = capacity_bytes // made.token_bytes // PADDING + 1
    while low < high:
        middle = (low + high + 1) // 2
        if with_cells(middle).num_bytes <= capacity_bytes:
            low = middle
        else:
            high = middle - 1
    if not low:
        raise InputError(
            "the pool has no room for the smallest buffers of cells",
            where="memory",
            value=f"{capacity_bytes:,} bytes",
            limit=f"{with_cells(1).num_bytes:,} bytes: {made.buffers} of {PADDING} cells",
            remedy="give the pool more memory, or share one buffer (kv_unified = true)",
        )
    return with_cells(low)
