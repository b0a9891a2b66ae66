"""Clients declare nothing: the engine must reckon with the model's maximum."""

from kvsim.workload.max_tokens.policy import MaxTokensOptions


class Undeclared(MaxTokensOptions):
    """No max_tokens in the request."""

    def declared(self, output_tokens: int) -> None:
        """No max_tokens, always None."""
        return
