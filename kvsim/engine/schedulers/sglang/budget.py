"""The budget of one scheduling pass: how many prompts it may admit (managers/schedule_policy.py,
mem_cache/prefill_budget.py).

The budget allocates nothing: it compares two sums with the memory that is free or evictable at that
moment. `total` counts running and admitted requests with all outputs they may still generate,
`current` with the tokens computed now.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from kvsim.engine.plan import UNBOUNDED
from kvsim.engine.schedulers.sglang.ignore_eos import RESERVED_TOKENS
from kvsim.memory.allocator import Refusal
from kvsim.memory.prefix_room import PrefixRoom, WindowRoom
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence

CLIP_MAX_NEW_TOKENS = 4096  # what a request counts with at most, whatever it asks for


class Stop(Enum):
    """Reason why a pass admits no more requests: memory, or another limit."""

    MEMORY = "memory"
    OTHER = "other"


class PassLimits(NamedTuple):
    """The limits of one pass.

    page: tokens of a page. max_prefill_tokens: most prompt tokens. chunked_prefill_size: most
    tokens of chunks; None: prompts are not cut. held_back: gives the expected output tokens of
    running requests; called only if the sum matters. most_held_back: an upper bound of that.
    mixed_tokens: tokens of decoding requests in the same step, part of the limits.
    """

    page: int
    max_prefill_tokens: int
    chunked_prefill_size: int | None
    held_back: Callable[[], float]
    most_held_back: int
    mixed_tokens: int


class Budget:
    """The tokens that one pass may still admit.

    input: prompt tokens left. chunk: chunk tokens left. current: tokens counted for admitted
    prompts. available: gives the tokens free or evictable now.

    windows: the pool of sliding windows; None without one (mem_cache/prefill_budget.py,
    `SWAPrefillBudget`). A request counts there with the tokens of its prompt beyond a window, and
    with at most one window of the later ones. Running requests do not count. charged_windows: slots
    of that pool that this pass has promised.
    """

    def __init__(
        self,
        available: Callable[[], int],
        limits: PassLimits,
        windows: WindowRoom | None = None,
    ) -> None:
        mixed_tokens, chunk_tokens = limits.mixed_tokens, limits.chunked_prefill_size
        self._available = available
        self._windows = windows
        self.charged_windows = 0
        self.page = limits.page
        self.input = limits.max_prefill_tokens - mixed_tokens
        self.chunked = chunk_tokens is not None
        self.chunk = UNBOUNDED if chunk_tokens is None else chunk_tokens - mixed_tokens
        self.current = mixed_tokens
        self._held_back = limits.held_back
        self._total: float | None = None
        self._most_total = limits.most_held_back + mixed_tokens
        self._charges = [mixed_tokens]  # in their order, in which the engine adds them up

    @property
    def total(self) -> float:
        """Tokens counted for running and admitted requests, with expected outputs."""
        if self._total is None:
            self._total = self._held_back()
        for charge in self._charges:
            self._total += charge
        self._charges.clear()
        return self._total

    @property
    def left_total(self) -> float:
        return self._available() - self.total

    @property
    def left_current(self) -> int:
        return self._available() - self.current

    @property
    def left_windows(self) -> int:
        windows = self._windows
        return UNBOUNDED if windows is None else windows.available() - self.charged_windows

    def _need_windows(self, tokens: int, rest: int) -> int:
        """Slots of the window pool for a prompt of `tokens` tokens, computed in chunks, and `rest`
        output tokens.
        """
        windows = self._windows
        return 0 if windows is None else _need(windows.window, tokens, rest, self.chunk, self.page)

    def too_much(self, tokens: int) -> bool:
        """Whether at most `tokens` tokens are left."""
        available = self._available()
        if tokens < available - self._most_total:
            return False
        return tokens >= available - self.total

    def stop(self) -> Stop | None:
        """Reason why no further request is admitted; None if one may be."""
        if self.left_windows <= 0 or self.too_much(0) or self.left_current <= 0:
            return Stop.MEMORY
        if self.input <= 0 or self.chunk <= 0:
            return Stop.OTHER
        return None

    def paged(self, tokens: int) -> int:
        """`tokens` rounded up to whole pages."""
        return ceil_div(tokens, self.page) * self.page

    def charge(self, tokens: int, max_new_tokens: int) -> None:
        """Subtract `tokens` prompt tokens and max_new_tokens output tokens of an admitted request.

        max_new_tokens is 0 for a chunk that is not the last of its prompt.
        """
        paged = self.paged(tokens)
        self.charged_windows += self._need_windows(paged, max_new_tokens)
        charge = paged + self.page + max_new_tokens
        self._charges.append(charge)
        self._most_total += charge
        self.current += paged + self.page
        self.input -= paged
        self.chunk -= paged

    def give_back(self, expected: float) -> None:
        """Return the expected output tokens of a retracted running request to the budget."""
        self._total = self.total - expected

    def most_of_chunk(self, new_tokens: int, rest: int) -> int | None:
        """Most tokens of a request that this pass could compute; None: the request does not fit.

        new_tokens: uncached prompt tokens. rest: expected output tokens.
        """
        if self.too_much(new_tokens + rest + self.page):
            return None
        windows, left = self._windows, self.left_windows
        if windows is None or (need := self._need_windows(self.paged(new_tokens), rest)) < left:
            return self.chunk
        if need < windows.pool or not self.chunked:
            return None  # it waits until there is room
        most = (left - min(rest, windows.window) - self.page) // self.page * self.page
        return min(self.chunk, most) if most > 0 else None

    def holds_at_once(self, new_tokens: int, rest: int) -> bool:
        """Whether the window pool has slots for a request with ignore_eos."""
        return self._need_windows(new_tokens, rest) <= self.left_windows

    def first_chunk(self, prefix_tokens: int, new_tokens: int, most: int) -> int:
        """Number of its new_tokens uncached tokens that a request computes in this pass, at most
        `most`; 0: none fit.
        """
        paged = self.paged(new_tokens)
        if not self.chunked or paged <= most:
            return new_tokens
        return (prefix_tokens + most) // self.page * self.page - prefix_tokens

    def next_chunk(self, new_tokens: int, limit: int | None = None) -> int:
        """Tokens of the next chunk of the chunked prompt, at most `limit`. The prompt continues
        even if no memory is left.

        0: no chunk in this pass, since the window pool lacks slots for it.
        """
        left = int(self.left_total)
        if self._windows is not None:
            most = min(self.chunk, left, self.left_windows - self.page)
        else:
            most = min(self.chunk, left) if left > 0 else self.chunk
        if limit is not None:
            most = min(most, limit)
        return max(0, min(new_tokens, most))


def _need(window: int, tokens: int, rest: int, chunk: int, page: int) -> int:
    return max(min(tokens, chunk) - window, 0) + min(tokens + rest, window) + page


def never_starts(
    room: PrefixRoom, head: Sequence, rest: int, chunk: int, page: int
) -> Refusal | None:
    """Why `head`, with `rest` outputs to come, never starts though nothing runs; None if it may.

    SGLang leaves such a request waiting for ever. On arrival it checks only the other pool
    (managers/utils.py, `validate_input_length`).
    """
    windows = room.windows
    if windows is None:
        return _never_ends(room, head, rest, page) if head.request.ignore_eos else None
    tokens = ceil_div(head.num_tokens - room.pin(head), page) * page
    limit = windows.available() - 1
    room.unpin(head)
    return Refusal(
        "it needs more slots of sliding windows at once than are ever free, and SGLang would let "
        "it and all later ones wait for ever",
        _need(windows.window, tokens, rest, chunk, page),
        limit,
        "slots",
        "set chunked_prefill_size, clip the prompts, or raise swa_full_tokens_ratio",
    )


def _never_ends(room: PrefixRoom, head: Sequence, rest: int, page: int) -> Refusal:
    """Why `head`, with `rest` outputs to come, never starts in an empty pool without a prefix
    cache.

    `Ends.fit` refuses it even alone.
    """
    return Refusal(
        "it asks for all its tokens (ignore_eos), more than SGLang ever has room for: it and all "
        "later ones would wait for ever",
        ceil_div(head.num_tokens, page) * page + page + max(0, rest) + RESERVED_TOKENS,
        room.available_tokens() - 1,
        "tokens",
        "clip the outputs, or enlarge the pool",
    )
