"""Prompts of recorded routers: a segment with one name has the same content in every prompt."""

from random import Random
from zlib import crc32

from evidence.schedule.routing.case import Pieces
from kvsim.request import TokenRuns

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENS = 100_003  # different token ids of Dynamo's recordings


class Letters:
    """Segments as text: random letters, seeded by the segment's name."""

    def __init__(self) -> None:
        self._drawn: dict[str, tuple[Random, list[tuple[int, int]]]] = {}

    def content(self, prompt: Pieces) -> TokenRuns:
        """The text of a prompt, with one id per character."""
        found: list[tuple[int, int]] = []
        for name, length in prompt:
            generator, letters = self._drawn.setdefault(name, (Random(f"seg:{name}"), []))
            while len(letters) < length:
                letters.append((ord(generator.choice(LETTERS)), 1))
            found += letters[:length]
        return tuple(found)


def text(characters: str) -> TokenRuns:
    """The given text, with one id per character."""
    return tuple((ord(each), 1) for each in characters)


def tokens(prompt: Pieces) -> TokenRuns:
    """Dynamo's token ids: (crc32(name) + i) mod 100003."""
    found: list[tuple[int, int]] = []
    for name, length in prompt:
        start = crc32(name.encode()) % TOKENS
        while length:
            count = min(length, TOKENS - start)
            found.append((start, count))
            start, length = 0, length - count
    return tuple(found)


def length_of(prompt: Pieces) -> int:
    """Length of a prompt, in characters or tokens."""
    return sum(length for _, length in prompt)
