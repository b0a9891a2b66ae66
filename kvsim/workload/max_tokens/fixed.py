"""Clients that all send the same limit, as a library's default does."""

from pydantic import PositiveInt

from kvsim.workload.max_tokens.policy import MaxTokensOptions


class Fixed(MaxTokensOptions):
    """max_tokens is `tokens`; it ends longer outputs, as an engine would."""

    tokens: PositiveInt

    def declared(self, output_tokens: int) -> int:
        """The same for all; an output longer than this is cut to it."""
        return self.tokens
