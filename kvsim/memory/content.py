"""Names for block content: one integer for all tokens of a sequence up to a block's end.

vLLM chains a hash over full blocks; here the chain is interned instead, so equal keys mean equal
content, without collisions. Tokens come as runs of consecutive ids (see request.py).
"""

from collections.abc import Iterator, Sequence

from kvsim.request import TokenRuns
from kvsim.sequence import Sequence as KVSequence

Content = int | TokenRuns
ROOT = 0


class ContentKeys:
    """Interns the chain (key of the block before, tokens of this block) -> key."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._keys: dict[tuple[int, Content], int] = {}
        self._next = ROOT + 1

    def of(self, seq: KVSequence) -> list[int]:
        """Keys of the full blocks of `seq` that another sequence can name: none if its prompt is
        private, those of the prompt if its output is, else all up to its last token."""
        if seq.prompt_runs is None:
            return []
        runs = seq.prompt_runs
        if seq.output_start is not None:
            runs = (*runs, (seq.output_start, seq.output_tokens))
        parent, keys = ROOT, []
        for content in _blocks(runs, self._block_size):
            link = (parent, content)
            key = self._keys.get(link)
            if key is None:
                key = self._keys[link] = self._next
                self._next += 1
            keys.append(key)
            parent = key
        return keys

    def private(self, count: int) -> Sequence[int]:
        """`count` keys that nothing else will ever get."""
        first, self._next = self._next, self._next + count
        return range(first, first + count)


def _blocks(runs: TokenRuns, block_size: int) -> Iterator[Content]:
    """The content of each full block: the first id if its ids are consecutive, else its runs."""
    parts: list[tuple[int, int]] = []
    missing = block_size
    for start, length in _coalesced(runs):
        if parts and length >= missing:
            yield (*parts, (start, missing))
            start, length = start + missing, length - missing
            parts, missing = [], block_size
        if not parts:
            full = length // block_size
            yield from range(start, start + full * block_size, block_size)
            start, length = start + full * block_size, length - full * block_size
        if length:
            parts.append((start, length))
            missing -= length


def _coalesced(runs: TokenRuns) -> Iterator[tuple[int, int]]:
    """The same tokens in as few runs as possible, so that equal tokens look equal."""
    held: tuple[int, int] | None = None
    for start, length in runs:
        if not length:
            continue
        if held is None:
            held = (start, length)
        elif held[0] + held[1] == start:
            held = (held[0], held[1] + length)
        else:
            yield held
            held = (start, length)
    if held is not None:
        yield held
