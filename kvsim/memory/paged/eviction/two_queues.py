"""Free blocks in two queues, one of which is spared until the other is empty."""

from collections import OrderedDict
from collections.abc import Iterator

from kvsim.memory.paged.eviction.policy import Eviction


class TwoQueues(Eviction):
    """Two queues, each in order of last use. The spared queue holds at most `most_spared` blocks;
    when it is full, its least recent block moves to the end of the other. A subclass chooses the
    spared blocks: `_is_spared`.
    """

    def __init__(self, most_spared: int) -> None:
        self._most_spared = most_spared
        self._plain: OrderedDict[int, None] = OrderedDict()
        self._spared: OrderedDict[int, None] = OrderedDict()

    def _is_spared(self, block: int) -> bool:
        """Whether to put `block`, which is being freed, into the spared queue."""
        raise NotImplementedError(type(self).__name__)  # every policy of two queues overrides this

    def _demoted(self, block: int) -> None:
        """Notify: `block` moves from the spared queue to the other."""

    def __setitem__(self, block: int, nothing: None) -> None:
        if not self._is_spared(block):
            self._plain[block] = None
            return
        self._spared[block] = None
        while len(self._spared) > self._most_spared:
            oldest, _ = self._spared.popitem(last=False)
            self._plain[oldest] = None
            self._demoted(oldest)

    def __delitem__(self, block: int) -> None:
        if block in self._plain:
            del self._plain[block]
        else:
            del self._spared[block]

    def __iter__(self) -> Iterator[int]:
        yield from self._plain
        yield from self._spared

    def __len__(self) -> int:
        return len(self._plain) + len(self._spared)

    def __contains__(self, block: object) -> bool:
        return block in self._plain or block in self._spared

    def _first(self) -> int:
        return next(iter(self._plain or self._spared))
