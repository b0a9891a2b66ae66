"""Clients that round up to a power of two (the "Pow2" estimate of the PagedAttention paper)."""

from kvsim.workload.max_tokens.policy import MaxTokensOptions


class NextPowerOfTwo(MaxTokensOptions):
    """max_tokens is the least power of two that is not below the output."""

    def declared(self, output_tokens: int) -> int:
        """max_tokens: 2 ** ceil(log2(output_tokens))."""
        return 1 << (output_tokens - 1).bit_length()
