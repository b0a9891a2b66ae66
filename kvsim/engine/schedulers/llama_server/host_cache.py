"""The server's prompt cache in host memory (tools/server/server-task.cpp)."""

from kvsim.engine.schedulers.llama_server.floats import common_prefix, f32
from kvsim.engine.schedulers.llama_server.slot import Checkpoint
from kvsim.memory.cells.cache import SavedState

LEAST_KEPT = 0.25  # of an entry that is worth loading


class Entry:
    """A cached prompt: its token ids, the saved state of its cells, and its checkpoints."""

    __slots__ = ("checkpoints", "state", "tokens")

    def __init__(self, tokens: list[int], state: SavedState, checkpoints: list[Checkpoint]) -> None:
        self.tokens = tokens
        self.state = state
        self.checkpoints = checkpoints

    @property
    def num_bytes(self) -> int:
        """Bytes of the entry in host memory."""
        return self.state.num_bytes + sum(each.state.num_bytes for each in self.checkpoints)


class HostCache:
    """Cached prompts, oldest first.

    limit_bytes: most bytes; None for no limit. context_tokens: the limit on tokens is at least
    this.
    """

    def __init__(self, limit_bytes: int | None, context_tokens: int) -> None:
        self.entries: list[Entry] = []
        self.limit_bytes = limit_bytes
        self.num_saved = self.num_loaded = self.num_dropped = 0
        self._context_tokens = context_tokens

    @property
    def num_bytes(self) -> int:
        """Bytes of all entries."""
        return sum(entry.num_bytes for entry in self.entries)

    def takes(self, tokens: list[int], num_bytes: int) -> bool:
        """Whether a prompt of this size may be stored; if so, room is made for it.

        Entries that are a prefix of the prompt are dropped, then the oldest ones.
        """
        if any(common_prefix(entry.tokens, tokens) == len(tokens) for entry in self.entries):
            return False
        limit = self.limit_bytes
        if limit is not None and num_bytes > limit:
            return False
        self.entries = [
            entry
            for entry in self.entries
            if common_prefix(entry.tokens, tokens) < len(entry.tokens)
        ]
        while limit is not None and self.entries and self.num_bytes + num_bytes > limit:
            self._drop_oldest()
        return True

    def _drop_oldest(self) -> None:
        del self.entries[0]
        self.num_dropped += 1

    def store(self, entry: Entry) -> None:
        """Append an entry."""
        self.entries.append(entry)
        self.num_saved += 1

    def better(self, held: list[int], prompt: list[int]) -> Entry | None:
        """Remove and return the entry with a better common prefix than a slot's tokens `held`;
        None: no entry is better.
        """
        common = common_prefix(held, prompt)
        best_keep = f32(common / len(held)) if held else -1.0
        best_share = f32(common / len(prompt)) if held else 0.0
        best = None
        for entry in self.entries:
            common = common_prefix(entry.tokens, prompt)
            keep, share = f32(common / len(entry.tokens)), f32(common / len(prompt))
            if keep >= LEAST_KEPT and keep > best_keep and share > best_share:
                best, best_keep, best_share = entry, keep, share
        if best is not None:
            self.entries.remove(best)
            self.num_loaded += 1
        return best

    def settle(self) -> None:
        """Evict the oldest entries beyond the limits, after a prompt was offered or stored."""
        limit, most = self.limit_bytes, self._context_tokens
        while limit is not None and self.entries and self.num_bytes > limit:
            self._drop_oldest()
        tokens = sum(len(entry.tokens) for entry in self.entries)
        if limit is not None:
            most = max(most, int(limit / max(1.0, self.num_bytes / max(1, tokens))))
        while self.entries and tokens > most:
            tokens -= len(self.entries[0].tokens)
            self._drop_oldest()
