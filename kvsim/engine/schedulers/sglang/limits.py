"""Limits that the pool's size sets on the length and number of requests (managers/scheduler.py,
kv_cache_configurator.py).
"""

from kvsim.engine.plan import UNBOUNDED
from kvsim.memory.allocator import Refusal
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request

RESERVED_TOKENS = 6  # of the context, in addition to the prompt
FEWEST_RUNNING, MOST_RUNNING = 2048, 4096


class Limits:
    """pool: tokens of the pool. context: length of the longest sequence. page: tokens of a page.
    states: number of recurrent states, one for each request; None without recurrent layers.
    """

    def __init__(self, pool: int, context: int, page: int, states: int | None = None) -> None:
        self._pool = pool
        self._context = context
        self._page = page
        self._states = states

    def max_running(self, given: int | None) -> int:
        """Most requests that run at once. given: max_running_requests, if set."""
        most = given
        if most is None:
            by_pool = int(self._pool / self._context * 512)
            most = min(max(by_pool, FEWEST_RUNNING), MOST_RUNNING)
        if self._states is not None:
            most = min(most, self._states)
        return max(1, min(most, self._pool // 2))

    def max_new_tokens(self, request: Request) -> int:
        """Most output tokens of `request`: its max_tokens, reduced so that it fits in the pool
        alone.
        """
        prompt = request.prompt_tokens
        declared = UNBOUNDED if request.max_tokens is None else request.max_tokens
        if request.max_tokens is None and request.ignore_eos:  # nothing else ends it
            declared = max(1, request.output_tokens)
        by_context = min(self._context, self._pool) - 1 - prompt - 1
        by_pool = self._pool - ceil_div(prompt, self._page) * self._page - self._page - 1
        return min(declared, by_context, by_pool)

    def refusal(self, request: Request) -> Refusal | None:
        """Reason why `request` is rejected on arrival."""
        longest = min(self._context, self._pool) - RESERVED_TOKENS
        if request.prompt_tokens < longest and self.max_new_tokens(request) > 0:
            return None
        return Refusal(
            "its prompt leaves no room for output in the context and the pool",
            request.prompt_tokens,
            longest - 1,
            "tokens",
            "clip the prompts, raise max_model_len or enlarge the pool",
        )
