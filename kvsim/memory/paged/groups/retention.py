"""Which blocks of a window get keys: those that some later request could continue from.

vLLM 0.33, v1/core/single_type_kv_cache_manager.py (`SlidingWindowManager.reachable_block_mask`).
When a block becomes full it is decided once whether its content gets a key; a block passed over
never does. `prefix_cache_retention_interval` says how dense the places are that a hit can end at:
None, every block; N, once in N tokens; 0, none but a request's own boundaries, the last place of
its prompt that a resent one can hit, and the junction with others that shared a prefix before.
"""

from collections.abc import Iterable

from kvsim.plumbing.units import ceil_div


class Retention:
    """For groups with a window of `window_tokens` tokens in blocks of `block_size`."""

    def __init__(self, window_tokens: int, block_size: int, interval_tokens: int | None) -> None:
        self._need = ceil_div(window_tokens - 1, block_size)
        self._segment = None  # blocks between places to continue from, if there are such at all
        if interval_tokens is None:
            self._segment = 1
        elif interval_tokens:
            self._segment = max(1, interval_tokens // block_size)

    def kept(self, start: int, end: int, boundaries: Iterable[int]) -> list[int]:
        """Of the positions start .. end - 1 those whose blocks get keys. boundaries: numbers of
        blocks after which the sequence itself is a place to continue from.
        """
        segment, need = self._segment, self._need
        if segment is not None and need >= segment:
            return list(range(start, end))
        found: set[int] = set()
        if segment is not None:
            found.update(i for i in range(start, end) if i % segment >= segment - need)
        for boundary in boundaries:
            found.update(range(max(start, boundary - need), min(end, boundary)))
        return sorted(found)
