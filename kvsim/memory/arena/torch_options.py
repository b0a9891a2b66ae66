"""The options of torch's caching allocator: with or without expandable segments."""

from kvsim.memory.arena.placement import PlacementOptions
from kvsim.memory.arena.torch_arena import TorchArena
from kvsim.memory.arena.torch_blocks import SMALL_SEGMENT
from kvsim.memory.arena.torch_caching import TorchCachingArena
from kvsim.memory.arena.torch_expandable import ExpandableArena
from kvsim.memory.options import MemorySpec, StoreKind
from kvsim.plumbing.errors import InputError


class TorchCaching(PlacementOptions):
    """torch's caching allocator. expandable_segments: the setting of that name in
    PYTORCH_CUDA_ALLOC_CONF.
    """

    expandable_segments: bool = False

    @property
    def store(self) -> StoreKind:
        """The "buffers" store: on the torch backend, torch's own allocator places the buffers."""
        return "buffers"

    def build(self, memory: MemorySpec) -> TorchArena:
        if memory.capacity_bytes < SMALL_SEGMENT:
            raise InputError(
                "the pool is smaller than one segment of torch's allocator",
                where="placement",
                value=f"{memory.capacity_bytes:,} bytes",
                limit=f"at least {SMALL_SEGMENT:,} bytes",
                remedy="give the pool more memory",
            )
        if self.expandable_segments:
            return ExpandableArena(memory.capacity_bytes)
        return TorchCachingArena(memory.capacity_bytes)
