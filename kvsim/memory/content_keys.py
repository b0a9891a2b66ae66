"""Keys of block content, like vLLM's block hashes: one integer for all tokens of a sequence up to a
block's end.

vLLM chains a hash over full blocks; here the chain is interned instead, so equal keys mean equal
content, without collisions. Tokens come as runs of consecutive ids (see request.py). All blocks
within one run get consecutive keys, computed at once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from kvsim.request import TokenRuns
from kvsim.sequence import Sequence as KVSequence
from kvsim.token_runs import coalesced

ROOT = 0
LONGEST_RUN = 1 << 32  # blocks


class KeyRuns:
    """Keys of successive blocks (or of hash units, fractions of a block), as runs of consecutive
    integers. firsts: the first key of each run; ends: number of keys up to the end of each run.
    """

    __slots__ = ("ends", "firsts")

    def __init__(self, firsts: list[int], ends: list[int]) -> None:
        self.firsts = firsts
        self.ends = ends

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def plus(self, first: int, count: int) -> "KeyRuns":
        """A copy with `count` > 0 more keys appended: first, first + 1, ..."""
        return KeyRuns([*self.firsts, first], [*self.ends, len(self) + count])

    def at(self, index: int) -> int:
        """The key at `index`."""
        run = bisect_right(self.ends, index)
        return self.firsts[run] + index - (self.ends[run - 1] if run else 0)

    def run_before(self, index: int) -> tuple[int, int]:
        """(index of the first key, first key) of the run that contains key number `index` - 1."""
        run = bisect_left(self.ends, index)
        return (self.ends[run - 1] if run else 0), self.firsts[run]

    def every(self, units: int) -> "KeyRuns":
        """Keys of blocks of `units` hash units each: the key of the block's last unit, renumbered
        to be consecutive in each run.
        """
        firsts: list[int] = []
        ends: list[int] = []
        start = 0
        for first, end in zip(self.firsts, self.ends, strict=True):
            block = start // units
            if end // units > block:
                name = first // LONGEST_RUN * LONGEST_RUN
                last_unit = first + (block + 1) * units - 1 - start
                firsts.append(name + (last_unit - name) // units)
                ends.append(end // units)
            start = end
        return KeyRuns(firsts, ends)

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        """The keys from `start` to `end` - 1, as runs (first, count)."""
        end = min(end, len(self))
        found: list[tuple[int, int]] = []
        run = bisect_right(self.ends, start) if start else 0
        passed = start - self.ends[run - 1] if run else start  # keys of that run
        while start < end:
            count = min(end, self.ends[run]) - start
            found.append((self.firsts[run] + passed, count))
            start, run, passed = start + count, run + 1, 0
        return found

    def listed(self, start: int, end: int) -> list[int]:
        """The keys from `start` to `end` - 1, one by one."""
        keys: list[int] = []
        for first, count in self.between(start, end):
            keys.extend(range(first, first + count))
        return keys


NO_KEYS = KeyRuns([], [])


class ContentKeys:
    """Maps the chain (key of the previous block, content of the next) to a new integer key, the
    same for equal content.

    The next content is the start of a run of whole blocks, or the pieces of one block.

    lookahead_tokens: number of tokens after a block that its key also depends on.
    """

    def __init__(self, block_size: int, lookahead_tokens: int = 0) -> None:
        self._block_size = block_size
        self._lookahead_tokens = lookahead_tokens
        self._names: dict[tuple[int, int | TokenRuns], int] = {}
        self._num_names = 1

    def of(self, seq: KVSequence) -> KeyRuns:
        """Keys of the full blocks of `seq` that another sequence can hit.

        None if its prompt is private, those of the prompt if only its output is, else all up to its
        last token.
        """
        if seq.prompt_runs is None:
            return NO_KEYS
        runs = seq.prompt_runs
        if seq.output_start is not None:
            runs = (*runs, (seq.output_start, seq.output_tokens))
        firsts: list[int] = []
        ends: list[int] = []
        parent, end = ROOT, 0
        for content, count in _key_runs(runs, self._block_size, self._lookahead_tokens):
            link = (parent, content)
            name = self._names.get(link)
            if name is None:
                name = self._names[link] = self.private()
            firsts.append(name)
            end += count
            ends.append(end)
            parent = name + count - 1
        return KeyRuns(firsts, ends)

    def private(self) -> int:
        """Reserve LONGEST_RUN consecutive keys that no other content gets; returns the first."""
        name = self._num_names * LONGEST_RUN
        self._num_names += 1
        return name


def _key_runs(
    runs: TokenRuns, block_size: int, lookahead_tokens: int
) -> Iterator[tuple[int | TokenRuns, int]]:
    """The full blocks in order, as long as `lookahead_tokens` more tokens follow each of them.

    Yields (first token id, number of blocks) where whole blocks and their lookahead are within one
    run of ids. A block made of several runs gives (pieces, 1).
    """
    pieces = list(coalesced(runs))
    whole = block_size + lookahead_tokens
    index, offset = 0, 0  # of the run that the next block begins in, and where
    while index < len(pieces):
        start, length = pieces[index]
        count = max(0, length - offset - lookahead_tokens) // block_size
        if count:
            yield start + offset, count
        else:
            parts = _first(pieces, index, offset, whole)
            if sum(length for _, length in parts) < whole:
                return
            yield parts, 1
            count = 1
        offset += count * block_size
        while index < len(pieces) and offset >= pieces[index][1]:
            offset -= pieces[index][1]
            index += 1


def _first(pieces: Sequence[tuple[int, int]], index: int, offset: int, count: int) -> TokenRuns:
    """At most `count` tokens from `offset` of run `index` on, as runs (first id, length)."""
    parts: list[tuple[int, int]] = []
    while count and index < len(pieces):
        start, length = pieces[index]
        taken = min(count, length - offset)
        parts.append((start + offset, taken))
        index, offset, count = index + 1, 0, count - taken
    return tuple(parts)
