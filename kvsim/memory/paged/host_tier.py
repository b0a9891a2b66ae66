"""A second tier for the prefix cache in host memory: offload on eviction, load on a hit.

Content evicted from a device block moves to the host, which evicts its least recently used content
when full. A hit is a run of blocks on the device, followed by a run on the host. Host hits take new
device blocks and are copied over the engine's link before the step. The host retains its copy, so
the same content is not offloaded again. Offloading overlaps with the steps and takes no time.
"""

from collections import OrderedDict
from collections.abc import Iterable


class HostTier:
    """The host's cached blocks by key, in blocks of block_bytes.

    moved_bytes: bytes copied out and in so far. hit_tokens: prompt tokens hit in host memory so
    far.
    """

    def __init__(self, capacity_bytes: int, block_bytes: int) -> None:
        self.moved_bytes = 0
        self.hit_tokens = 0
        self._block_bytes = block_bytes
        self._capacity_blocks = capacity_bytes // block_bytes
        self._held: OrderedDict[int, None] = OrderedDict()  # least recent first

    def offload(self, key: int) -> None:
        """Store the content of an evicted device block, unless the host has it."""
        if not self._capacity_blocks:
            return
        if key not in self._held:
            self.moved_bytes += self._block_bytes
            if len(self._held) == self._capacity_blocks:
                self._held.popitem(last=False)
        self._held[key] = None
        self._held.move_to_end(key)

    def run_of(self, keys: Iterable[int]) -> list[int]:
        """The longest leading run of `keys` that the host has."""
        found: list[int] = []
        for key in keys:
            if key not in self._held:
                break
            found.append(key)
        return found

    def load(self, keys: list[int], hit_tokens_each: int) -> int:
        """Copy blocks to the device; returns their bytes. hit_tokens_each: prompt tokens to count
        as hit for each block.
        """
        for key in keys:
            if key in self._held:  # else evicted by an offload of this admission
                self._held.move_to_end(key)
        num_bytes = len(keys) * self._block_bytes
        self.moved_bytes += num_bytes
        self.hit_tokens += len(keys) * hit_tokens_each
        return num_bytes
