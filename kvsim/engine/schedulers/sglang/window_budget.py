"""What one pass may still admit where sliding windows have a pool of their own
(mem_cache/prefill_budget.py, `SWAPrefillBudget`).

That pool is weighed beside the other: a request counts with what its prompt takes beyond a window,
and a window at most of what comes after. Who runs does not count there.
"""

from collections.abc import Callable

from kvsim.engine.schedulers.sglang.budget import Budget, PassLimits, Stop
from kvsim.memory.prefix_room import PrefixRoom, WindowRoom


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
        window = self.windows.window
        return max(min(tokens, self.chunk) - window, 0) + min(tokens + rest, window) + self.page

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


def budget_over(room: PrefixRoom, limits: PassLimits) -> Budget:
    """The budget of one pass over `room`."""
    windows = room.windows
    if windows is None:
        return Budget(room.available_tokens, limits)
    return WindowBudget(windows, room.available_tokens, limits)
