"""`kvsim memory MODEL --device D`: KV bytes per token, size of the KV pool, sequences that fit."""

from kvsim.commands.memory.command import memory

__all__ = ["memory"]
