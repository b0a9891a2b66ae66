"""LRU hits at every cache size, in one pass, by stack distances.

Source: Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2),
1970.

A block is hit in a cache of C blocks if it is among the C last used blocks. Prompts are served one
after the other. Of one prompt the first block counts as used last, because engines free the last
block first. A later prompt with the same prefix uses the blocks from the first one on. So the
blocks that a prompt was the last to use form one segment, at the end of its path in the tree. The
number of blocks used since then is a sum, over later prompts, of the lengths of such segments.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.request import Request, TokenRuns
from kvsim.whatif.cache_curve.tree import PromptTree, StretchNode


class HitCurve(NamedTuple):
    """Hits of an LRU cache as a function of its size.

    hit_tokens, hit_blocks: (n + 1,) tokens and blocks hit by a cache of 0, 1, ... n blocks; a cache
    of more than n blocks hits no more. query_tokens: tokens of all prompts. block_tokens: tokens
    per block.
    """

    hit_tokens: NDArray[np.int64]
    hit_blocks: NDArray[np.int64]
    query_tokens: int
    block_tokens: int

    def hits(self, num_blocks: int) -> int:
        """Tokens hit in a cache of `num_blocks` blocks."""
        return int(self.hit_tokens[min(num_blocks, len(self.hit_tokens) - 1)])

    def ratio(self, num_tokens: int) -> float:
        """Share of the prompt tokens hit in a cache of `num_tokens`, rounded down to blocks."""
        hits = self.hits(num_tokens // self.block_tokens)
        return hits / self.query_tokens if self.query_tokens else 0.0

    @property
    def unlimited(self) -> float:
        """Share of the prompt tokens hit in an infinite cache."""
        return self.ratio(len(self.hit_tokens) * self.block_tokens)

    @classmethod
    def together(cls, curves: Sequence["HitCurve"]) -> "HitCurve":
        """The sum of the curves of several caches of equal size that serve different prompts."""
        longest = max(len(each.hit_tokens) for each in curves)

        def summed(parts: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
            total = np.zeros(longest, dtype=np.int64)
            for part in parts:
                total += np.pad(part, (0, longest - len(part)), "edge")
            return total

        return cls(
            summed(each.hit_tokens for each in curves),
            summed(each.hit_blocks for each in curves),
            sum(each.query_tokens for each in curves),
            curves[0].block_tokens,
        )


def lru_curve(
    requests: Iterable[Request],
    block_tokens: int,
    *,
    outputs: bool = False,
    partial: bool = False,
) -> HitCurve:
    """The LRU hit curve of these prompts in this order.

    outputs: generated tokens are cached too; they take space even if no later prompt can hit them.
    partial: the last block of a prompt is cached although it is not full, as in traces of block
    hashes. A prompt with the same last tokens then hits it. Without `partial`, as in vLLM, only
    full blocks hit and at least one token of a prompt is computed. A prompt without token ids takes
    space and is never hit.
    """
    tree = PromptTree(block_tokens, partial=partial)
    served = list(requests)
    alive = _Counts(len(served))
    found_at: list[tuple[int, int]] = []  # stretches of hits: (position of the first, how many)
    short: list[tuple[int, int]] = []  # blocks that are not full: (position, tokens they lack)
    for index, request in enumerate(served):
        tokens, runs = request.prompt_tokens, kept_runs(request, outputs=outputs)
        kept_tokens = tokens + request.output_tokens - 1 if outputs else tokens
        num_blocks = -(-kept_tokens // block_tokens) if partial else kept_tokens // block_tokens
        alive.add(index, num_blocks)
        if runs is None:
            continue
        found, made = tree.walk(runs)
        usable = num_blocks if partial else (tokens - 1) // block_tokens
        _look_up(found, usable, alive, index, found_at)
        missing = -tokens % block_tokens if partial else 0
        if missing and found and not made:
            position, count = found_at[-1]
            short.append((position + count - 1, missing))
        for node in found:
            alive.add(node.last_use, -node.count)
        for node in (*found, *made):
            node.last_use = index
    query_tokens = sum(request.prompt_tokens for request in served)
    needed = _needed(found_at)
    hit_tokens = needed * block_tokens
    for position, missing in short:
        hit_tokens[position] -= missing
    return HitCurve(np.cumsum(hit_tokens), np.cumsum(needed), query_tokens, block_tokens)


def kept_runs(request: Request, *, outputs: bool) -> TokenRuns | None:
    """The tokens that a request leaves in the cache: its prompt and, with `outputs`, its output
    without the last token, which has no KV.

    None: no other request can hit its content.
    """
    if request.prompt_runs is None:
        return None
    if not outputs or request.output_start is None or request.output_tokens < 2:
        return request.prompt_runs
    return (*request.prompt_runs, (request.output_start, request.output_tokens - 1))


def _look_up(
    found: list[StretchNode],
    usable: int,
    alive: "_Counts",
    index: int,
    found_at: list[tuple[int, int]],
) -> None:
    """Append to `found_at` the LRU stack position and length of each segment that prompt `index`
    hits.

    found: nodes of the prompt that are in the tree. usable: at most this many blocks may hit.
    """
    user, within = -1, 0  # whose last use we are in, and how far
    for node in found:
        if node.last_use != user:
            user, within = node.last_use, 0
        count = min(node.count, usable)
        if count <= 0:
            return
        found_at.append((alive.between(user, index) + within + 1, count))
        within += node.count
        usable -= count


def _needed(found_at: list[tuple[int, int]]) -> NDArray[np.int64]:
    """(n + 1,) number of block hits that need a cache of exactly 0, 1, ... n blocks.

    found_at: (position, blocks) of each segment. Each further block of a segment needs one more
    block of cache.
    """
    largest = max((position + count - 1 for position, count in found_at), default=0)
    moves = np.zeros(largest + 2, dtype=np.int64)
    if found_at:
        first, count = np.array(found_at, dtype=np.int64).T
        np.add.at(moves, first, 1)
        np.add.at(moves, first + count, -1)
    needed: NDArray[np.int64] = np.cumsum(moves)[: largest + 1]
    return needed


class _Counts:
    """A Fenwick tree with the number of blocks that each prompt was the last to use."""

    def __init__(self, size: int) -> None:
        self._sums = [0] * (size + 1)

    def add(self, index: int, count: int) -> None:
        """Add `count` (which may be negative) to the blocks last used by prompt `index`."""
        place = index + 1
        while place < len(self._sums):
            self._sums[place] += count
            place += place & -place

    def between(self, before: int, after: int) -> int:
        """Number of blocks last used by a prompt with an index between `before` and `after`,
        exclusive.
        """
        return self._up_to(after) - self._up_to(before + 1)

    def _up_to(self, place: int) -> int:
        total = 0
        while place:
            total += self._sums[place]
            place -= place & -place
        return total
