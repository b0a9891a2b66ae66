"""The blocks of a window that get keys: those from which a later request could continue.

vLLM 0.33, v1/core/single_type_kv_cache_manager.py (`SlidingWindowManager.reachable_block_mask`). A
full block gets its key at once or never. `prefix_cache_retention_interval` is the distance between
places at which a hit can end: None, every block; N, every N tokens; 0, only the boundaries of a
request. These are the last place of its prompt that a resent one can hit, and its boundary with
prompts that shared a prefix before.
"""

from collections.abc import Iterable, Sequence

from kvsim.memory.paged.group_lookup import Kind
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div

NEVER = 1 << 62  # position


class Retention:
    """The retention of a kind of groups with a window or with states.

    interval_tokens: as above. drops: hits lose their last block, so each place needs one more after
    it. below_junctions: a place one block before a shared-prefix boundary is retained too.
    """

    def __init__(
        self, kind: Kind, aligned: int, interval_tokens: int | None, *, below_junctions: bool
    ) -> None:
        assert kind.reach is not None
        size = kind.block_size
        self._size, self._aligned = size, aligned
        self._behind = int(kind.drops)
        self._below = size * self._behind if below_junctions else 0
        self._need = ceil_div(kind.reach.kept_tokens, size) + kind.drops
        self._sparse = interval_tokens is not None
        self._segment = None  # blocks between retained places, None without any
        if interval_tokens is None:
            self._segment = 1 if kind.recurrent else max(1, aligned // size)
        elif interval_tokens:
            self._segment = max(1, interval_tokens // size)

    def kept(
        self, start: int, end: int, boundaries: Iterable[int], junction: int = 0
    ) -> Sequence[int]:
        """Positions from `start` to `end` - 1 of the blocks to register.

        boundaries: token counts at which others can continue from the sequence; junction: the
        shared-prefix boundary, after which others diverge from it, 0 for none.
        """
        segment, need, behind = self._segment, self._need, self._behind
        if segment is not None and need >= segment:
            return range(start, end)
        found: set[int] = set()
        if segment is not None:
            places = range(max(start, behind), end)
            found.update(i for i in places if (i - behind) % segment >= segment - need)
        if not self._sparse:
            return sorted(found)
        if junction:  # sequences that diverge there cannot use the block behind it
            boundaries = (*boundaries, junction, junction - self._below)
        for boundary in boundaries:
            last = boundary // self._aligned * self._aligned // self._size + behind
            found.update(range(max(start, last - need), min(end, last)))
        return sorted(found)

    def kept_until(self, boundaries: Iterable[int], junction: int) -> int:
        """The position from which on `kept` returns nothing."""
        if self._segment is not None:
            return NEVER
        if junction:
            boundaries = (*boundaries, junction)
        aligned = (boundary // self._aligned * self._aligned for boundary in boundaries)
        return max((tokens // self._size for tokens in aligned), default=0) + self._behind


def check_interval(interval_tokens: int | None, whole: int) -> None:
    """Raise InputError unless interval_tokens is a multiple of `whole`, the tokens between possible
    ends of hits.
    """
    if interval_tokens is not None and interval_tokens % whole:
        raise InputError(
            "not a multiple of the block size",
            where="allocator.prefix_cache_retention_interval",
            value=interval_tokens,
            limit=f"multiples of {whole}",
        )
