"""The limits of a step of continuous batching."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Knobs:
    """The limits of a step of continuous batching, by vLLM's names.

    by_priority: policy = "priority". fits_whole: a sequence is admitted only if all its tokens fit,
    though chunks need less.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    enable_chunked_prefill: bool
    long_prefill_token_threshold: int
    by_priority: bool
    fits_whole: bool

    @property
    def longest_chunk(self) -> int:
        """Most tokens of one prompt that a step computes: the token budget, or
        long_prefill_token_threshold if that is set and smaller.
        """
        longest = self.max_num_batched_tokens
        return min(longest, self.long_prefill_token_threshold or longest)
