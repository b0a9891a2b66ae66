"""A second tier for the prefix cache in host memory: offload on eviction, load on a hit.

Content that is evicted from a block of the device goes to the host, least recently used content
leaves the host when its share is full. A hit is a run of blocks on the device and after it a run in
the host; the latter take new blocks and are copied in over the engine's link before the step. They
stay in the host as well, so content goes out once while it is there. Offloading goes on beside the
steps and takes no time of theirs.
"""

from collections import OrderedDict
from collections.abc import Iterable


class HostTier:
    """Content by its keys, in blocks of block_bytes.

    moved_bytes: out and in so far. hit_tokens: of requests that found them here.
    """

    def __init__(self, capacity_bytes: int, block_bytes: int) -> None:
        self.moved_bytes = 0
        self.hit_tokens = 0
        self._block_bytes = block_bytes
        self._capacity_blocks = capacity_bytes // block_bytes
        self._held: OrderedDict[int, None] = OrderedDict()  # least recent first

    def offload(self, key: int) -> None:
        """A block of the device has lost its content."""
        if not self._capacity_blocks:
            return
        if key not in self._held:
            self.moved_bytes += self._block_bytes
            if len(self._held) == self._capacity_blocks:
                self._held.popitem(last=False)
        self._held[key] = None
        self._held.move_to_end(key)

    def run_of(self, keys: Iterable[int]) -> list[int]:
        """The leading `keys` that are here."""
        found: list[int] = []
        for key in keys:
            if key not in self._held:
                break
            found.append(key)
        return found

    def load(self, keys: list[int], hit_tokens_each: int) -> int:
        """These contents go to the device; returns their bytes."""
        for key in keys:
            if key in self._held:  # else it made way for what this admission evicted
                self._held.move_to_end(key)
        num_bytes = len(keys) * self._block_bytes
        self.moved_bytes += num_bytes
        self.hit_tokens += len(keys) * hit_tokens_each
        return num_bytes
