"""The server's calls into the KV cache, one by one, for recordings."""

from collections.abc import Callable, Sequence
from typing import Any

from kvsim.memory.cells.cache import CellCache, SavedState
from kvsim.memory.cells.field import TokenRun

OnCall = Callable[[str, dict[str, Any]], None]


def _ignore(name: str, values: dict[str, Any]) -> None:
    """Do not record calls."""


class Calls:
    """The cache. on_call: called after each call with its name and values."""

    def __init__(self, cache: CellCache, on_call: OnCall = _ignore) -> None:
        self.cache = cache
        self.on_call = on_call

    def decode(self, runs: Sequence[TokenRun]) -> int:
        """Decode a batch: place its tokens in cells."""
        code = self.cache.decode(runs)
        self.on_call("decode", {"batch": runs, "rc": code})
        return code

    def remove(self, seq: int, p0: int, p1: int = -1) -> None:
        """A sequence leaves its cells at positions [p0, p1)."""
        self.cache.remove(seq, p0, p1)
        self.on_call("seq_rm", {"a": [seq, p0, p1]})

    def shift(self, seq: int, p0: int, p1: int, delta: int) -> None:
        """Shift positions [p0, p1) of a sequence by `delta`."""
        self.cache.shift(seq, p0, p1, delta)
        self.on_call("seq_add", {"a": [seq, p0, p1, delta]})

    def share(self, source: int, target: int) -> None:
        """All that one sequence has is the other's too."""
        self.cache.share(source, target)
        self.on_call("seq_cp", {"a": [source, target, -1, -1]})

    def save(self, seq: int, *, windows_only: bool = False) -> SavedState:
        """Copy a sequence to the host."""
        state = self.cache.save(seq, windows_only=windows_only)
        values = {"seq": seq, "flags": int(windows_only), "bytes": state.num_bytes}
        self.on_call("save", values)
        return state

    def restore(self, state: SavedState, seq: int, *, windows_only: bool = False) -> bool:
        """A sequence has what was saved; False: no room, and it has nothing."""
        done = self.cache.restore(state, seq, windows_only=windows_only)
        values = {"seq": seq, "flags": int(windows_only), "bytes": state.num_bytes * done}
        self.on_call("restore", values)
        return done
