"""Clients that know exactly how much they will get: an oracle."""

from kvsim.workload.max_tokens.policy import MaxTokensOptions


class Exact(MaxTokensOptions):
    """max_tokens equals the output."""

    def declared(self, output_tokens: int) -> int:
        """The output's own length."""
        return output_tokens
