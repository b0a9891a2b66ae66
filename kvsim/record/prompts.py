"""Prompts as token ids or as words, such that requests with equal content get equal prompts.

A workload gives content by ids that are not tokens of any model. Each id becomes a token by a
salted hash. Each recording has another salt, so the server's prefix cache holds nothing from an
earlier one.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsim.request import Request, TokenRuns

FIRST_ID, IDS = 1_000, 16_384  # in every vocabulary, and no special tokens
_PRIVATE = 1 << 62  # content that no workload names
_MASK = (1 << 64) - 1
# Words that are one token each, with the space before them, in the usual vocabularies.
_TEXT = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or "
    "had an they which one you were all her she there would their we him been has when who will no "
    "more if out so up said what its about than into them can only other time new some could these"
)
WORDS = tuple(_TEXT.split())
PROBE_WORDS = 64


class PromptContent:
    """Makes the prompts of requests. salt is the recording's.

    words_a_token and extra_tokens are for servers that accept only text: a prompt of w words has
    extra_tokens + w / words_a_token tokens.
    """

    def __init__(self, salt: int, words_a_token: float = 1.0, extra_tokens: int = 0) -> None:
        self._salt = salt
        self._words_a_token, self._extra = words_a_token, extra_tokens
        self._private = _PRIVATE

    def ids(self, request: Request) -> list[int]:
        """The prompt as token ids, one for each of its tokens."""
        found: list[int] = (FIRST_ID + self._hashes(request) % np.uint64(IDS)).tolist()
        return found

    def text(self, request: Request) -> str:
        """The prompt as words, about as many tokens long as the request asks for."""
        count = round(max(1, request.prompt_tokens - self._extra) * self._words_a_token)
        hashes = np.resize(self._hashes(request), max(1, count))
        return words(hashes)

    def _hashes(self, request: Request) -> NDArray[np.uint64]:
        runs = request.prompt_runs
        if runs is None:
            runs = ((self._private, request.prompt_tokens),)
            self._private += request.prompt_tokens
        return _mixed(_numbers(runs), self._salt)


def words(hashes: Iterable[Any]) -> str:
    """Text with one word for each hash."""
    return " ".join(WORDS[int(each) % len(WORDS)] for each in hashes)


def probe_text(salt: int) -> str:
    """A text of PROBE_WORDS words; the server's count of its tokens tells how many tokens a word
    has.
    """
    return words(_mixed(_numbers(((_PRIVATE - PROBE_WORDS, PROBE_WORDS),)), salt))


def probe_ids(count: int) -> list[int]:
    """A short prompt of `count` token ids."""
    return [FIRST_ID + index for index in range(count)]


def _numbers(runs: TokenRuns) -> NDArray[np.uint64]:
    parts = [
        np.uint64(start & _MASK) + np.arange(length, dtype=np.uint64) for start, length in runs
    ]
    return np.concatenate(parts)


def _mixed(numbers: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """The SplitMix64 hash of each number, so that consecutive numbers give unrelated hashes."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64((salt * 0x9E3779B97F4A7C15) & _MASK)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
