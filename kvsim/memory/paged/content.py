"""Names for block content: one integer for all tokens of a sequence up to a block's end.

vLLM chains a hash over full blocks; here the chain is interned instead, so equal keys mean equal
content, without collisions. Tokens come as runs of consecutive ids (see request.py): all blocks
that lie in one run are named at once, by the run's name and their place in it.
"""

from collections.abc import Iterator, Sequence

from kvsim.request import TokenRuns
from kvsim.sequence import Sequence as KVSequence
from kvsim.token_runs import coalesced

ROOT = 0
LONGEST_RUN = 1 << 32  # blocks


class ContentKeys:
    """Interns the chain (key of the block before, what follows it) -> name, for both kinds of
    what follows: the start of a run of whole blocks, or the pieces of one block.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._names: dict[tuple[int, int | TokenRuns], int] = {}
        self._num_names = 1

    def of(self, seq: KVSequence) -> list[int]:
        """Keys of the full blocks of `seq` that another sequence can name: none if its prompt is
        private, those of the prompt if its output is, else all up to its last token.
        """
        if seq.prompt_runs is None:
            return []
        runs = seq.prompt_runs
        if seq.output_start is not None:
            runs = (*runs, (seq.output_start, seq.output_tokens))
        keys: list[int] = []
        parent = ROOT
        for content, count in _stretches(runs, self._block_size):
            link = (parent, content)
            name = self._names.get(link)
            if name is None:
                name = self._names[link] = self._new_name()
            keys.extend(range(name, name + count))
            parent = name + count - 1
        return keys

    def private(self, count: int) -> Sequence[int]:
        """`count` keys that nothing else will ever get."""
        name = self._new_name()
        return range(name, name + count)

    def _new_name(self) -> int:
        name = self._num_names * LONGEST_RUN
        self._num_names += 1
        return name


def _stretches(runs: TokenRuns, block_size: int) -> Iterator[tuple[int | TokenRuns, int]]:
    """The full blocks in order: (first id, blocks) where whole blocks lie in one run, (pieces, 1)
    for a block that several runs share.
    """
    parts: list[tuple[int, int]] = []
    missing = block_size
    for start, length in coalesced(runs):
        if parts and length >= missing:
            yield (*parts, (start, missing)), 1
            start, length = start + missing, length - missing
            parts, missing = [], block_size
        if not parts and length >= block_size:
            count = length // block_size
            yield start, count
            start, length = start + count * block_size, length - count * block_size
        if length:
            parts.append((start, length))
            missing -= length
