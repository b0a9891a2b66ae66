"""The shape of a step, from which its time follows: prompt chunks and decoding sequences."""

from typing import NamedTuple


class Chunk(NamedTuple):
    """Prompt tokens of one sequence computed in one step, after `prior` computed ones."""

    new_tokens: int
    prior_tokens: int


class StepShape(NamedTuple):
    """Token counts of one engine step.

    chunks: the prefill chunks; num_decode: sequences that decode one token each. context_tokens:
    the sum over them of the tokens they attend to, the new ones included. longest_context_tokens:
    the longest of these (0 if not known). num_drafts: drafted tokens verified in addition to the
    decoding sequences' own.
    """

    chunks: tuple[Chunk, ...]
    num_decode: int
    context_tokens: int
    longest_context_tokens: int = 0
    num_drafts: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens computed in the step."""
        decoded = self.num_decode + self.num_drafts
        return self.prefill_tokens + decoded if self.chunks else decoded

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens computed in the step."""
        return sum(chunk.new_tokens for chunk in self.chunks)

    @property
    def attention_pairs(self) -> int:
        """Query-key pairs of the chunks: sum of new * prior + new * (new + 1) / 2."""
        return sum(new * prior + new * (new + 1) // 2 for new, prior in self.chunks)

    @property
    def prefill_context_tokens(self) -> int:
        """KV tokens the chunks read: sum of prior + new."""
        return sum(new + prior for new, prior in self.chunks)
