"""Clients declare no max_tokens: the engine must assume the model's maximum length."""

from kvsim.workload.max_tokens.policy import MaxTokensOptions


class Undeclared(MaxTokensOptions):
    """No max_tokens in the request."""

    def declared(self, output_tokens: int) -> None:
        """Always None: no max_tokens."""
        return
