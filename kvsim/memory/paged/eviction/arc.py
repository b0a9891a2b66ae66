"""Adaptive Replacement Cache (Megiddo and Modha, "ARC: a self-tuning, low overhead replacement
cache", FAST 2003).

The balance between recent and frequent content adapts to recent misses of each kind.

Blocks in use cannot be evicted, so both lists hold free blocks, and the target for recent content
is a share of these. Content returns from a ghost list when it is computed again.
"""

from collections import OrderedDict
from collections.abc import Iterator

from kvsim.memory.paged.eviction.policy import Eviction, EvictionPolicy


class Arc(EvictionPolicy):
    """Adaptive replacement (ARC): balances recency and frequency; without options."""

    def build(self, num_blocks: int, block_tokens: int) -> "Adaptive":
        return Adaptive(num_blocks)


class Adaptive(Eviction):
    """T1 and T2 of the paper: `_recent`, free content that was used once, and `_frequent`, used
    twice or more; B1 and B2: `_once` and `_often`, keys of content evicted from each.
    """

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._target = 0  # blocks of recent content, if all blocks were free
        self._recent: OrderedDict[int, None] = OrderedDict()
        self._frequent: OrderedDict[int, None] = OrderedDict()
        self._once: OrderedDict[int, None] = OrderedDict()
        self._often: OrderedDict[int, None] = OrderedDict()
        self._found: set[int] = set()  # blocks with content used twice or more
        self._nameless = 0

    def registered(self, block: int, key: int) -> None:
        once, often = self._once, self._often
        if key in once:
            self._target = min(self._num_blocks, self._target + max(1, len(often) // len(once)))
            del once[key]
        elif key in often:
            self._target = max(0, self._target - max(1, len(once) // len(often)))
            del often[key]
        else:
            return
        self._found.add(block)

    def found(self, block: int) -> None:
        self._found.add(block)

    def forgotten(self, block: int, key: int | None) -> None:
        if key is None:  # counts among the ghosts, and never returns
            self._nameless -= 1
            key = self._nameless
        self._once.pop(key, None)  # another block may have held the same
        self._often.pop(key, None)
        (self._often if block in self._found else self._once)[key] = None
        self._found.discard(block)
        if len(self._recent) + len(self._once) > self._num_blocks:
            self._once.popitem(last=False)
        if len(self) + len(self._once) + len(self._often) > 2 * self._num_blocks:
            (self._often or self._once).popitem(last=False)

    def __setitem__(self, block: int, nothing: None) -> None:
        (self._frequent if block in self._found else self._recent)[block] = None

    def __delitem__(self, block: int) -> None:
        if block in self._recent:
            del self._recent[block]
        else:
            del self._frequent[block]

    def __iter__(self) -> Iterator[int]:
        recent, frequent = iter(self._recent), iter(self._frequent)
        num_recent, num_frequent = len(self._recent), len(self._frequent)
        while num_recent or num_frequent:
            if self._takes_recent(num_recent, num_frequent):
                yield next(recent)
                num_recent -= 1
            else:
                yield next(frequent)
                num_frequent -= 1

    def __len__(self) -> int:
        return len(self._recent) + len(self._frequent)

    def __contains__(self, block: object) -> bool:
        return block in self._recent or block in self._frequent

    def _takes_recent(self, num_recent: int, num_frequent: int) -> bool:
        """Whether to evict recent content, as its share is above the target, which shrinks with the
        free blocks.
        """
        free = num_recent + num_frequent
        above = num_recent * self._num_blocks > self._target * free
        return num_recent > 0 and (above or not num_frequent)

    def _first(self) -> int:
        takes_recent = self._takes_recent(len(self._recent), len(self._frequent))
        return next(iter(self._recent if takes_recent else self._frequent))
