"""Allocators of KV memory: one file each, and one line each here."""

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
