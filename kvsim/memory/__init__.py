"""Allocators of KV memory: one module each, registered here by one line each."""

from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.registry import Registry

ALLOCATORS: Registry[AllocatorOptions] = Registry(
    "allocator",
    {
        "max-buffer": "kvsim.memory.contiguous.max_buffer:MaxBuffer",
        "doubling": "kvsim.memory.contiguous.doubling:Doubling",
        "concatenation": "kvsim.memory.contiguous.concatenation:Concatenation",
        "paged": "kvsim.memory.paged.options:Paged",
        "page-groups": "kvsim.memory.paged.page_groups:PageGroups",
        "radix": "kvsim.memory.radix.options:Radix",
        "cells": "kvsim.memory.cells.options:Cells",
    },
)
