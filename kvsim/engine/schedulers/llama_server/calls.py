"""The server's calls into the KV cache, one by one, for whoever writes them down."""

from collections.abc import Callable, Sequence
from typing import Any

from kvsim.memory.cells.cache import CellCache, SavedState
from kvsim.memory.cells.field import TokenRun

Heard = Callable[[str, dict[str, Any]], None]


def _nobody(name: str, told: dict[str, Any]) -> None:
    """Nobody writes calls down."""


class Calls:
    """The cache, and who hears of each call after it was made."""

    def __init__(self, cache: CellCache, heard: Heard = _nobody) -> None:
        self.cache = cache
        self.heard = heard

    def decode(self, runs: Sequence[TokenRun]) -> int:
        """Place a batch."""
        code = self.cache.decode(runs)
        self.heard("decode", {"batch": runs, "rc": code})
        return code

    def remove(self, seq: int, p0: int, p1: int = -1) -> None:
        """A sequence leaves its cells at positions [p0, p1)."""
        self.cache.remove(seq, p0, p1)
        self.heard("seq_rm", {"a": [seq, p0, p1]})

    def shift(self, seq: int, p0: int, p1: int, delta: int) -> None:
        """Positions [p0, p1) move."""
        self.cache.shift(seq, p0, p1, delta)
        self.heard("seq_add", {"a": [seq, p0, p1, delta]})

    def share(self, source: int, target: int) -> None:
        """All that one sequence has is the other's too."""
        self.cache.share(source, target)
        self.heard("seq_cp", {"a": [source, target, -1, -1]})

    def save(self, seq: int, *, windows_only: bool = False) -> SavedState:
        """Copy a sequence to the host."""
        state = self.cache.save(seq, windows_only=windows_only)
        told = {"seq": seq, "flags": int(windows_only), "bytes": state.num_bytes}
        self.heard("save", told)
        return state

    def restore(self, state: SavedState, seq: int, *, windows_only: bool = False) -> bool:
        """A sequence has what was saved; False: no room, and it has nothing."""
        done = self.cache.restore(state, seq, windows_only=windows_only)
        told = {"seq": seq, "flags": int(windows_only), "bytes": state.num_bytes * done}
        self.heard("restore", told)
        return done
