"""What one pass may still admit where sliding windows have a pool of their own
(mem_cache/prefill_budget.py, `SWAPrefillBudget`).

That pool is weighed beside the other: a request counts with what its prompt takes beyond a window,
and a window at most of what comes after. Running requests do not count there.
"""

from collections.abc import Callable

from kvsim.engine.schedulers.sglang.budget import Budget, PassLimits, Stop
from kvsim.memory.allocator import Refusal
from kvsim.memory.prefix_room import PrefixRoom, WindowRoom
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


class WindowBudget(Budget):
    """windows: their pool. charged: tokens of it that this pass has promised."""

    def __init__(
        self, windows: WindowRoom, available: Callable[[], int], limits: PassLimits
    ) -> None:
        super().__init__(available, limits)
        self.windows = windows
        self.charged = 0

    @property
    def left_windows(self) -> int:
        return self.windows.available() - self.charged

    def _need(self, tokens: int, rest: int) -> int:
        """Slots for `tokens` of a prompt, of which a chunk at once, and `rest` tokens of output."""
        return _need(self.windows.window, tokens, rest, self.chunk, self.page)

    def stop(self) -> Stop | None:
        return Stop.MEMORY if self.left_windows <= 0 else super().stop()

    def most_of_chunk(self, new_tokens: int, rest: int) -> int | None:
        if self.too_much(new_tokens + rest + self.page):
            return None
        need = self._need(self.paged(new_tokens), rest)
        if need < self.left_windows:
            return self.chunk
        if need < self.windows.pool or not self.chunked:
            return None  # room will come
        room = self.left_windows - min(rest, self.windows.window) - self.page
        most = room // self.page * self.page
        return min(self.chunk, most) if most > 0 else None

    def holds_at_once(self, new_tokens: int, rest: int) -> bool:
        return self._need(new_tokens, rest) <= self.left_windows

    def charge(self, tokens: int, max_new_tokens: int) -> None:
        self.charged += self._need(self.paged(tokens), max_new_tokens)
        super().charge(tokens, max_new_tokens)

    def next_chunk(self, new_tokens: int) -> int:
        most = min(self.chunk, int(self.left_total), self.left_windows - self.page)
        return max(0, min(new_tokens, most))


def _need(window: int, tokens: int, rest: int, chunk: int, page: int) -> int:
    return max(min(tokens, chunk) - window, 0) + min(tokens + rest, window) + page


def never_starts(
    room: PrefixRoom, head: Sequence, rest: int, chunk: int, page: int
) -> Refusal | None:
    """Why `head`, which may put out `rest` tokens more, finds no windows though nothing runs: what
    SGLang lets wait for ever. It refuses on arrival by the other pool alone (managers/utils.py,
    `validate_input_length`).
    """
    windows = room.windows
    if windows is None:
        return None
    tokens = ceil_div(head.num_tokens - room.pin(head), page) * page
    limit = windows.available() - 1
    room.unpin(head)
    return Refusal(
        "it needs more slots of sliding windows at once than are ever free, and SGLang would let "
        "it and all behind it wait for ever",
        _need(windows.window, tokens, rest, chunk, page),
        limit,
        "slots",
        "set chunked_prefill_size, clip the prompts, or raise swa_full_tokens_ratio",
    )


def budget_over(room: PrefixRoom, limits: PassLimits) -> Budget:
    """The budget of one pass over `room`."""
    windows = room.windows
    if windows is None:
        return Budget(room.available_tokens, limits)
    return WindowBudget(windows, room.available_tokens, limits)
