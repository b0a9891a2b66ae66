"""Token ids of requests, which the server compares to find common prefixes."""

from collections.abc import Callable

from kvsim.sequence import Sequence


class Contents:
    """Token ids of prompts and outputs. Tokens that no other request can have get unique negative
    ids.
    """

    def __init__(self) -> None:
        self._private = 0

    def of(self, seq: Sequence) -> tuple[list[int], Callable[[int], int]]:
        """(token ids of the prompt, function that gives the n-th output token) of a sequence."""
        prompt: list[int] = []
        if seq.prompt_runs is None:
            start = self._take(seq.prompt_tokens)
            prompt += range(start, start + seq.prompt_tokens)
        else:
            for start, length in seq.prompt_runs:
                prompt += range(start, start + length)
        first = seq.output_start
        if first is None:
            first = self._take(seq.output_tokens)
        return prompt, first.__add__

    def _take(self, num: int) -> int:
        """Reserve `num` unique ids; returns the first."""
        self._private -= num
        return self._private
