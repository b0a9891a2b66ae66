"""The server's calls into the llama.cpp KV cache, each reported for recordings."""

from collections.abc import Callable, Sequence
from typing import Any

from kvsim.memory.cells.cache import CellCache, SavedState
from kvsim.memory.cells.field import TokenRun

OnCall = Callable[[str, dict[str, Any]], None]


def _ignore(name: str, values: dict[str, Any]) -> None:
    """The default of `on_call`: record nothing."""


class Calls:
    """Forwards calls to a KV cache. on_call: called after each call with its name and values."""

    def __init__(self, cache: CellCache, on_call: OnCall = _ignore) -> None:
        self.cache = cache
        self.on_call = on_call

    def decode(self, runs: Sequence[TokenRun]) -> int:
        """Decode a batch: place its tokens in cells; returns llama.cpp's code."""
        code = self.cache.decode(runs)
        self.on_call("decode", {"batch": runs, "rc": code})
        return code

    def remove(self, seq: int, p0: int, p1: int = -1) -> None:
        """Remove a sequence from its cells at positions p0 to p1 - 1."""
        self.cache.remove(seq, p0, p1)
        self.on_call("seq_rm", {"a": [seq, p0, p1]})

    def shift(self, seq: int, p0: int, p1: int, delta: int) -> None:
        """Shift positions p0 to p1 - 1 of a sequence by `delta`."""
        self.cache.shift(seq, p0, p1, delta)
        self.on_call("seq_add", {"a": [seq, p0, p1, delta]})

    def share(self, source: int, target: int) -> None:
        """Add sequence `target` to all cells of sequence `source`."""
        self.cache.share(source, target)
        self.on_call("seq_cp", {"a": [source, target, -1, -1]})

    def save(self, seq: int, *, windows_only: bool = False) -> SavedState:
        """Copy the cells of a sequence to host memory."""
        state = self.cache.save(seq, windows_only=windows_only)
        values = {"seq": seq, "flags": int(windows_only), "bytes": state.num_bytes}
        self.on_call("save", values)
        return state

    def restore(self, state: SavedState, seq: int, *, windows_only: bool = False) -> bool:
        """Restore a saved state into cells of `seq`; False: there is no room, and the sequence has
        no cells.
        """
        done = self.cache.restore(state, seq, windows_only=windows_only)
        values = {"seq": seq, "flags": int(windows_only), "bytes": state.num_bytes * done}
        self.on_call("restore", values)
        return done
