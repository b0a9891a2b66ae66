"""Token content of sequences as runs of token ids, which are cut into the nodes of a radix tree."""

from bisect import bisect_right
from itertools import accumulate

from kvsim.request import TokenRuns
from kvsim.token_runs import coalesced


class Content:
    """All tokens that a sequence will ever hold, from its first on, cut and compared as runs: no
    operation costs time for each token.

    Adjacent runs are merged where possible, so equal tokens give equal runs.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, runs: TokenRuns) -> None:
        few = tuple(coalesced(runs))
        self._starts = [start for start, _ in few]
        self._ends = list(accumulate(length for _, length in few))

    def token(self, at: int) -> int:
        """The id of the token at index `at`."""
        index = bisect_right(self._ends, at)
        return self._starts[index] + at - (self._ends[index - 1] if index else 0)

    def pieces(self, begin: int, end: int) -> TokenRuns:
        """Tokens `begin` to `end` (exclusive) as runs."""
        starts, ends = self._starts, self._ends
        index = bisect_right(ends, begin)
        found: list[tuple[int, int]] = []
        while begin < end:
            run_begin = ends[index - 1] if index else 0
            upto = min(ends[index], end)
            found.append((starts[index] + begin - run_begin, upto - begin))
            begin = upto
            index += 1
        return tuple(found)

    def common(self, begin: int, runs: TokenRuns, limit: int) -> int:
        """Number of tokens from `begin` on that equal those of `runs`, up to `limit`."""
        starts, ends = self._starts, self._ends
        index, at = bisect_right(ends, begin), begin
        for start, length in runs:
            while length and at < limit:
                run_begin = ends[index - 1] if index else 0
                if starts[index] + at - run_begin != start:
                    return at - begin
                same = min(length, ends[index] - at)
                at, start, length = at + same, start + same, length - same
                index += at == ends[index]
        return min(at, limit) - begin


def cut(runs: TokenRuns, tokens: int) -> tuple[TokenRuns, TokenRuns]:
    """Split `runs` in two: the first `tokens` tokens, and the rest."""
    head: list[tuple[int, int]] = []
    for index, (start, length) in enumerate(runs):
        if length > tokens:
            rest = ((start + tokens, length - tokens), *runs[index + 1 :])
            return (*head, (start, tokens)) if tokens else tuple(head), rest
        head.append((start, length))
        tokens -= length
    return tuple(head), ()
