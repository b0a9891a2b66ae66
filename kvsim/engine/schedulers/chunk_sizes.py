"""Number of tokens of a sequence that one step of continuous batching computes."""

from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.sequence import Sequence


class ChunkSizes:
    """Sizes of the chunks of one scheduler.

    budget: tokens left in the step. threshold: most tokens of one prompt, 0 for no such limit.
    """

    def __init__(self, scheduler: Scheduler, parts: ContinuousParts) -> None:
        self._scheduler, self._allocator = scheduler, parts.allocator
        self._drafter, self._version = parts.drafter, parts.version
        self._chunked = parts.knobs.enable_chunked_prefill
        self._longest_chunk = parts.knobs.longest_chunk

    def first(
        self, seq: Sequence, computed: int, budget: int, threshold: int, padding: int | None
    ) -> tuple[int, int]:
        """(tokens of the first chunk, how many of them are padding drafts).

        0 tokens: nothing is computed in this step. -1: the prompt is too long for this step, so the
        next sequence is tried. padding: result of `padding`, if one token is to be computed.
        """
        new_tokens, drafts = seq.num_tokens - computed, 0
        if new_tokens == 1:
            if padding is None or 1 + padding > budget:
                return 0, 0
            drafts = padding
            new_tokens += drafts
        if 0 < threshold < new_tokens:
            new_tokens = threshold
        if new_tokens > budget and not self._chunked:
            return -int(self._version.tries_behind_too_long), 0
        new_tokens = min(new_tokens, budget)
        new_tokens = self._allocator.cut_chunk(seq, computed, new_tokens, self._longest_chunk)
        return (1, 0) if drafts and 0 < new_tokens != 1 + drafts else (new_tokens, drafts)

    def padding(self, cached_tokens: int, *, prefills: bool, runs: bool) -> int | None:
        """Number of padding drafts, never accepted, of an admission that computes one token; None:
        it waits.
        """
        if self._version.pads_in_idle_engine:
            return self._drafter.padding(cached_tokens, prefills=prefills, runs=runs)
        return self._drafter.padding_beside(cached_tokens, prefills=prefills, runs=runs)

    def next(self, seq: Sequence, budget: int, threshold: int) -> int:
        """Tokens of the next chunk of a running prompt; 0: none in this step."""
        new_tokens = seq.num_tokens - seq.num_computed
        if 0 < threshold < new_tokens:
            new_tokens = threshold
        sampled = min(1, seq.request.output_tokens)
        most = self._scheduler.max_model_len - seq.num_computed - sampled
        new_tokens = min(new_tokens, budget, most)
        if new_tokens <= 0:
            return 0
        start, longest = seq.num_computed, self._longest_chunk
        new_tokens = self._allocator.cut_chunk(seq, start, new_tokens, longest)
        return self.allowed(seq, start, new_tokens)

    def allowed(self, seq: Sequence, start_tokens: int, new_tokens: int) -> int:
        """Number of new_tokens that the step's limits allow, with enough of the prompt left for the
        drafter to read ahead.

        0: the sequence is skipped.
        """
        new_tokens = self._scheduler.limits.allowed(seq, start_tokens, new_tokens)
        return self._drafter.clear_of_end(seq, start_tokens, new_tokens)
