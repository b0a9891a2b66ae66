"""Clients that know the output length exactly: an oracle."""

from kvsim.workload.max_tokens.policy import MaxTokensOptions


class Exact(MaxTokensOptions):
    """max_tokens equals the output's length."""

    def declared(self, output_tokens: int) -> int:
        """The output's own length, as max_tokens."""
        return output_tokens
