"""A second tier for the prefix cache in host memory: offload on eviction, load on a hit.

Content that is evicted from a block of the device goes to the host, least recently used content
leaves the host when its share is full. A hit is a run of blocks on the device and after it a run in
the host; the latter take new blocks and are copied in over the engine's link before the step. They
stay in the host as well, so content goes out once while it is there. Offloading goes on beside the
steps and takes no time of theirs.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

from kvsim.memory.allocator import MemorySpec
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.v0 import PagedV0Allocator
from kvsim.plumbing.units import GIB
from kvsim.sequence import Sequence

if TYPE_CHECKING:
    from kvsim.memory.paged.options import Paged


class HostTierAllocator(PagedAllocator):
    """host_bytes counts both ways; host_hit_tokens those that came from the host."""

    def __init__(self, options: "Paged", memory: MemorySpec) -> None:
        super().__init__(options, memory)
        assert options.host_cache_gib is not None
        self._capacity_blocks = int(options.host_cache_gib * GIB) // self._block_bytes
        self._host: OrderedDict[int, None] = OrderedDict()  # content keys, least recent first
        self._loaded_bytes = 0
        self.pool.on_lapse = self._offload

    def _offload(self, key: int) -> None:
        """A block of the device has lost its content."""
        if not self._capacity_blocks:
            return
        if key not in self._host:
            self.host_bytes += self._block_bytes
            if len(self._host) == self._capacity_blocks:
                self._host.popitem(last=False)
        self._host[key] = None
        self._host.move_to_end(key)

    def _host_keys(self, seq: Sequence) -> list[int]:
        """Content of `seq` that the host has, from where the device's ends."""
        most = (seq.num_tokens - 1) // self.block_size
        found: list[int] = []
        for key in self._keys_of(seq)[len(self._hit_blocks(seq)) : most]:
            if key not in self._host:
                break
            found.append(key)
        return found

    def cached_tokens(self, seq: Sequence) -> int:
        return super().cached_tokens(seq) + len(self._host_keys(seq)) * self.block_size

    def admit(
        self, seq: Sequence, num_tokens: int, *, cached_tokens: int, reserve_tokens: int, busy: bool
    ) -> bool:
        keys = self._host_keys(seq)
        if not super().admit(
            seq,
            num_tokens,
            cached_tokens=cached_tokens,
            reserve_tokens=reserve_tokens,
            busy=busy,
        ):
            return False
        for key in keys:
            if key in self._host:  # else it made way for what this admission evicted
                self._host.move_to_end(key)
        self._loaded_bytes = len(keys) * self._block_bytes
        self.host_bytes += self._loaded_bytes
        if not seq.num_preemptions:
            self.host_hit_tokens += len(keys) * self.block_size
        return True

    def take_loaded_bytes(self) -> int:
        loaded, self._loaded_bytes = self._loaded_bytes, 0
        return loaded

    def spare_steps(self, head: Sequence, limit: int, *, busy: bool) -> int:
        """As promised; a block taken may push content of the head's out of the host."""
        limit = super().spare_steps(head, limit, busy=busy)
        return self._steps_within(0, limit) if self._keys_of(head) else limit


class HostTierV0Allocator(PagedV0Allocator, HostTierAllocator):
    """The same under vLLM v0's rules for blocks, samples sharing through the cache."""
