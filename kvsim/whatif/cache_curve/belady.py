"""The bound no policy of a given size passes: Belady's MIN, which knows what comes.

Keep the blocks that are needed again soonest (Belady, "A study of replacement algorithms for a
virtual-storage computer", IBM Systems Journal 5(2), 1966). While a prompt is served its blocks are
there for others at no cost, afterwards a block may be dropped at once. A use at which the block is
computed in any case, found or not, is worth nothing, so until then it need not be kept. The next
use of a block is never later than that of those below it, so where ties go to the upper one a block
is never kept without those above it. Block by block: some seconds a million blocks.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from kvsim.request import Request, TokenRuns
from kvsim.whatif.cache_curve.lru import kept_runs
from kvsim.whatif.cache_curve.tree import PromptTree, StretchNode

_NEVER = 1 << 62


class CacheVisit(NamedTuple):
    """One sequence's request to the cache. prompt_tokens: of which one at least is computed. runs:
    the content that it leaves, beginning with its prompt; None where the content has no name.
    """

    prompt_tokens: int
    runs: TokenRuns | None


class VisitEvent(NamedTuple):
    """The begin or the end of visit number `visit`."""

    visit: int
    ends: bool


def belady_hits(
    requests: Iterable[Request], num_blocks: int, block_tokens: int, *, outputs: bool = False
) -> int:
    """Prompt tokens found by a cache of `num_blocks` full blocks under MIN, by vLLM's rules: full
    blocks alone, and one token of a prompt at least is computed. Prompts are served one after the
    other. outputs: as for the curve.
    """
    visits = [CacheVisit(each.prompt_tokens, kept_runs(each, outputs=outputs)) for each in requests]
    moments = [VisitEvent(index, ends) for index in range(len(visits)) for ends in (False, True)]
    return most_hits(visits, moments, num_blocks, block_tokens)


def most_hits(
    visits: Sequence[CacheVisit], moments: Sequence[VisitEvent], num_blocks: int, block_tokens: int
) -> int:
    """The same for visits that overlap: each begins and ends once in `moments`. What is served now
    takes no room, so a pool that must hold it too finds less.
    """
    paths = _paths(visits, block_tokens)
    usable = [(visit.prompt_tokens - 1) // block_tokens for visit in visits]
    next_use = _next_uses(paths, usable, moments)
    holders: dict[int, int] = {}  # block -> visits that have it now
    kept: dict[int, int] = {}  # block -> the moment of its next use
    order: list[tuple[int, int, int]] = []  # (-next use, -depth, block), some of them outdated
    hits = 0
    for visit, ends in moments:
        path = paths[visit]
        if not ends:
            for block in path[: usable[visit]]:
                if block not in kept and block not in holders:
                    break
                hits += 1
            for block in path:
                kept.pop(block, None)
                holders[block] = holders.get(block, 0) + 1
            continue
        for depth, (block, again) in enumerate(zip(path, next_use[visit], strict=True)):
            holders[block] -= 1
            if holders[block]:
                continue
            del holders[block]
            if again != _NEVER:
                kept[block] = again
                heappush(order, (-again, -depth, block))
        while len(kept) > num_blocks:
            again, _, block = heappop(order)
            if kept.get(block) == -again:
                del kept[block]
    return hits * block_tokens


def _paths(visits: Iterable[CacheVisit], block_tokens: int) -> list[list[int]]:
    """Each visit's blocks by number."""
    tree = PromptTree(block_tokens)
    paths = []
    for visit in visits:
        nodes: list[StretchNode] = []
        if visit.runs is not None:
            found, made = tree.walk(visit.runs)
            nodes = [*found, *made]
        path = [block for node in nodes for block in range(node.first, node.first + node.count)]
        paths.append(path)
    return paths


def _next_uses(
    paths: Sequence[list[int]], usable: Sequence[int], moments: Sequence[VisitEvent]
) -> dict[int, list[int]]:
    """For each visit and each block of its path: the next moment after its end at which a visit
    asks for the block, _NEVER if that computes it in any case.
    """
    latest: dict[int, int] = {}
    found: dict[int, list[int]] = {}
    for at in range(len(moments) - 1, -1, -1):
        visit, ends = moments[at]
        path = paths[visit]
        if ends:
            found[visit] = [latest.get(block, _NEVER) for block in path]
        else:
            asked = usable[visit]
            latest.update(dict.fromkeys(path[:asked], at))
            latest.update(dict.fromkeys(path[asked:], _NEVER))
    return found
