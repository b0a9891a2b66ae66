"""Allocators that store each sequence in contiguous buffers."""
