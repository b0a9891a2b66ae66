"""Clients that all send the same limit, as a library's default does."""

from pydantic import PositiveInt

from kvsim.workload.max_tokens.policy import MaxTokensOptions


class Fixed(MaxTokensOptions):
    """max_tokens is `tokens`; longer outputs are cut, as an engine would."""

    tokens: PositiveInt

    def declared(self, output_tokens: int) -> int:
        """The same max_tokens for every request; an output longer than this is cut."""
        return self.tokens
