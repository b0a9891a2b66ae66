"""Where KV memory is kept: one file an allocator, and its line here."""

from kvsim.memory.allocator import AllocatorOptions
from kvsim.registry import Registry

ALLOCATORS: Registry[AllocatorOptions] = Registry(
    "allocator",
    {
        "max-buffer": "kvsim.memory.max_buffer:MaxBuffer",
        "doubling": "kvsim.memory.doubling:Doubling",
        "concatenation": "kvsim.memory.concatenation:Concatenation",
        "paged": "kvsim.memory.paged_options:Paged",
        "page-groups": "kvsim.memory.page_groups:PageGroups",
    },
)
