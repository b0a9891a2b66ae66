"""Keys of chunks: a key identifies all tokens up to a chunk's end, in one layer group."""

from kvsim.memory.content_keys import ContentKeys, KeyRuns
from kvsim.sequence import Sequence


class ChunkKeys:
    """Keys of the chunks of sequences. chunk_tokens[g]: tokens of a chunk in layer group g.

    Chunks with generated tokens that no other request can have get unique keys.
    """

    def __init__(self, chunk_tokens: tuple[int, ...]) -> None:
        self._chunk_tokens = chunk_tokens
        self._num = len(chunk_tokens)
        self._content = {tokens: ContentKeys(tokens) for tokens in chunk_tokens}
        self._runs: dict[Sequence, dict[int, KeyRuns]] = {}

    def key(self, seq: Sequence, group: int, place: int) -> int:
        """Key of chunk number `place` of `seq` in a layer group."""
        return self._of(seq, self._chunk_tokens[group]).at(place) * self._num + group

    def listed(self, seq: Sequence, group: int, start: int, end: int) -> list[int]:
        """Keys of the chunks `start` to `end` - 1 of `seq` in a layer group."""
        keys = self._of(seq, self._chunk_tokens[group]).listed(start, end)
        return keys if self._num == 1 else [key * self._num + group for key in keys]

    def forget(self, seq: Sequence) -> None:
        """Drop the stored keys of `seq`, which is not asked for again."""
        self._runs.pop(seq, None)

    def _of(self, seq: Sequence, tokens: int) -> KeyRuns:
        found = self._runs.setdefault(seq, {})
        runs = found.get(tokens)
        if runs is None:
            content = self._content[tokens]
            runs = content.of(seq)
            missing = (seq.final_tokens + 1) // tokens - len(runs)
            if missing > 0:
                runs = runs.plus(content.private(), missing)
            found[tokens] = runs
        return runs
