"""Budget of one pass's admissions (managers/schedule_policy.py, mem_cache/prefill_budget.py).

The budget allocates nothing: it compares two sums with the memory free or evictable at that moment.
`total` counts running and admitted requests with all outputs they may still generate, `current`
with the tokens computed now.
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
    """Why a pass admits no more: memory, or another limit."""

    MEMORY = "memory"
    OTHER = "other"


class PassLimits(NamedTuple):
    """The limits of one pass: its prompt tokens, or the tokens of its chunks; decoding requests
    take mixed_tokens of them. held_back: tokens that running requests may still put out, as far as
    counted, at most `most_held_back`; summed where that matters. page: tokens a page.
    """

    page: int
    max_prefill_tokens: int
    chunked_prefill_size: int | None
    held_back: Callable[[], float]
    most_held_back: int
    mixed_tokens: int


class Budget:
    """The budget of one pass.

    input: prompt tokens of this pass. chunk: the same under chunked prefill. current: tokens held
    back, see above. available: what could be handed out now.

    windows: the pool of sliding windows, if there is one (mem_cache/prefill_budget.py,
    `SWAPrefillBudget`). A request counts there with the tokens of its prompt beyond a window, and
    with at most one window of the later ones. Running requests do not count. charged_windows: slots
    of it that this pass has promised.
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
        """Tokens held back, see above."""
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
        """Slots of the window pool for `tokens` of a prompt, of which a chunk at once, and `rest`
        tokens of output.
        """
        windows = self._windows
        return 0 if windows is None else _need(windows.window, tokens, rest, self.chunk, self.page)

    def too_much(self, tokens: int) -> bool:
        """Whether `tokens` tokens are all that is left, or more."""
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
        """`tokens` in whole pages."""
        return ceil_div(tokens, self.page) * self.page

    def charge(self, tokens: int, max_new_tokens: int) -> None:
        """Subtract `tokens` prompt tokens of this pass, and `max_new_tokens` output tokens; 0 where
        a prompt goes on.
        """
        paged = self.paged(tokens)
        self.charged_windows += self._need_windows(paged, max_new_tokens)
        charge = paged + self.page + max_new_tokens
        self._charges.append(charge)
        self._most_total += charge
        self.current += paged + self.page
        self.input -= paged
        self.chunk -= paged

    def most_of_chunk(self, new_tokens: int, rest: int) -> int | None:
        """Tokens that a request with `new_tokens` uncached tokens and `rest` outputs could compute
        in this pass at most.

        None: it does not fit.
        """
        if self.too_much(new_tokens + rest + self.page):
            return None
        windows, left = self._windows, self.left_windows
        if windows is None or (need := self._need_windows(self.paged(new_tokens), rest)) < left:
            return self.chunk
        if need < windows.pool or not self.chunked:
            return None  # room will come
        most = (left - min(rest, windows.window) - self.page) // self.page * self.page
        return min(self.chunk, most) if most > 0 else None

    def holds_at_once(self, new_tokens: int, rest: int) -> bool:
        """Whether the window pool holds a request that asks for all its tokens."""
        return self._need_windows(new_tokens, rest) <= self.left_windows

    def first_chunk(self, prefix_tokens: int, new_tokens: int, most: int) -> int:
        """How many of its uncached tokens a request computes in this pass, `most` of them at most;
        0: none fit.
        """
        paged = self.paged(new_tokens)
        if not self.chunked or paged <= most:
            return new_tokens
        return (prefix_tokens + most) // self.page * self.page - prefix_tokens

    def next_chunk(self, new_tokens: int) -> int:
        """Tokens of the next chunk of the prompt in progress, which must go on whatever is left.

        0: it has to wait, as its windows do not fit.
        """
        left = int(self.left_total)
        if self._windows is not None:
            most = min(self.chunk, left, self.left_windows - self.page)
        else:
            most = min(self.chunk, left) if left > 0 else self.chunk
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
    """Reason why `head`, with `rest` outputs to come, does not start in an empty pool without a
    cache: `Ends.fit` refuses it alone.
    """
    return Refusal(
        "it asks for all its tokens (ignore_eos), more than SGLang ever has room for: it and all "
        "later ones would wait for ever",
        ceil_div(head.num_tokens, page) * page + page + max(0, rest) + RESERVED_TOKENS,
        room.available_tokens() - 1,
        "tokens",
        "clip the outputs, or enlarge the pool",
    )
