"""The tokens of requests, one by one, as a server compares them."""

from collections.abc import Callable

from kvsim.sequence import Sequence


class Contents:
    """Prompts and outputs. What no other request can name is numbered below zero."""

    def __init__(self) -> None:
        self._private = 0

    def of(self, seq: Sequence) -> tuple[list[int], Callable[[int], int]]:
        """The prompt of a sequence, and its n-th output token."""
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
        """Numbers that are unique to one request."""
        self._private -= num
        return self._private
