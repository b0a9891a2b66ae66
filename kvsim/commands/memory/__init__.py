"""`kvsim memory MODEL --device D`: what a token costs, what the pool holds, how many fit."""

from kvsim.commands.memory.command import memory

__all__ = ["memory"]
