"""Placements of contiguous buffers in the pool's one address space: one module each, registered
here by one line each.
"""

from kvsim.memory.arena.placement import PlacementOptions
from kvsim.plumbing.registry import Registry

PLACEMENTS: Registry[PlacementOptions] = Registry(
    "placement",
    {
        "first-fit": "kvsim.memory.arena.first_fit:FirstFit",
        "best-fit": "kvsim.memory.arena.best_fit:BestFit",
        "next-fit": "kvsim.memory.arena.next_fit:NextFit",
        "buddy": "kvsim.memory.arena.buddy:Buddy",
        "fixed-slots": "kvsim.memory.arena.fixed_slots:FixedSlots",
        "torch-caching": "kvsim.memory.arena.torch_options:TorchCaching",
    },
)
