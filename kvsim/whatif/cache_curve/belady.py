"""Upper bound on the hits of any eviction policy at a given cache size: Belady's MIN, which knows
future requests.

Keep the blocks that are needed again soonest (Belady, "A study of replacement algorithms for a
virtual-storage computer", IBM Systems Journal 5(2), 1966). While a prompt is served its blocks are
there for others at no cost, afterwards a block may be dropped at once. A use at which the block is
computed in any case, found or not, is worth nothing, so until then it need not be kept. The next
use of a block is never later than that of the blocks below it. So where ties go to the upper one, a
block never stays cached without those above it. Blocks that the same visits use in the same way are
one piece, so a visit takes a few steps however long its prompt is.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from kvsim.request import Request, TokenRuns
from kvsim.whatif.cache_curve.lru import kept_runs
from kvsim.whatif.cache_curve.tree import PromptTree

_NEVER = 1 << 62
_Span = tuple[int, int]  # numbers of blocks: the first, and the one behind the last


class CacheVisit(NamedTuple):
    """One sequence's use of the prefix cache. prompt_tokens: length of the prompt, of which at
    least one token is computed. runs: the tokens it leaves in the cache, prompt first; None if no
    other request can hit its content.
    """

    prompt_tokens: int
    runs: TokenRuns | None


class VisitEvent(NamedTuple):
    """Begin or end of visit number `visit`."""

    visit: int
    ends: bool


def belady_hits(
    requests: Iterable[Request], num_blocks: int, block_tokens: int, *, outputs: bool = False
) -> int:
    """Prompt tokens hit in a cache of `num_blocks` full blocks under Belady's MIN.

    As in vLLM, only full blocks hit, and at least one token of a prompt is computed. Prompts are
    served one after the other. outputs: whether generated tokens are cached too.
    """
    visits = [CacheVisit(each.prompt_tokens, kept_runs(each, outputs=outputs)) for each in requests]
    moments = [VisitEvent(index, ends) for index in range(len(visits)) for ends in (False, True)]
    return most_hits(visits, moments, num_blocks, block_tokens)


def most_hits(
    visits: Sequence[CacheVisit], moments: Sequence[VisitEvent], num_blocks: int, block_tokens: int
) -> int:
    """`belady_hits` for visits that overlap: each begins and ends once in `moments`.

    Blocks in use take no cache space here, so the hits of a real pool, which must also hold them,
    are fewer.
    """
    asked = [(visit.prompt_tokens - 1) // block_tokens for visit in visits]
    bounds, paths, usable = _pieces(_paths(visits, block_tokens), asked)
    next_use = _next_uses(paths, usable, moments)
    holders: dict[int, int] = {}  # piece -> visits that have it now
    kept: dict[int, tuple[int, int]] = {}  # piece -> the moment of its next use, blocks kept of it
    order: list[tuple[int, int, int]] = []  # (-next use, -depth, piece), some of them outdated
    hits = room = 0  # room: blocks of `kept`
    for visit, ends in moments:
        path = paths[visit]
        if not ends:
            for piece in path[: usable[visit]]:
                size = bounds[piece + 1] - bounds[piece]
                found = size if piece in holders else kept.get(piece, (0, 0))[1]
                hits += found
                if found < size:
                    break
            for piece in path:
                room -= kept.pop(piece, (0, 0))[1]
                holders[piece] = holders.get(piece, 0) + 1
            continue
        for depth, (piece, again) in enumerate(zip(path, next_use[visit], strict=True)):
            holders[piece] -= 1
            if holders[piece]:
                continue
            del holders[piece]
            if again != _NEVER:
                size = bounds[piece + 1] - bounds[piece]
                kept[piece] = again, size
                room += size
                heappush(order, (-again, -depth, piece))
        while room > num_blocks:
            entry = heappop(order)
            again, size = kept.get(entry[2], (_NEVER, 0))
            if again != -entry[0]:
                continue
            dropped = min(size, room - num_blocks)
            room -= dropped
            if dropped < size:  # from its end
                kept[entry[2]] = again, size - dropped
                heappush(order, entry)
            else:
                del kept[entry[2]]
    return hits * block_tokens


def _paths(visits: Iterable[CacheVisit], block_tokens: int) -> list[list[_Span]]:
    """The blocks of each visit, from the first block of the prompt on."""
    tree = PromptTree(block_tokens)
    paths = []
    for visit in visits:
        walked = ([], []) if visit.runs is None else tree.walk(visit.runs)
        paths.append([(node.first, node.first + node.count) for part in walked for node in part])
    return paths


def _pieces(
    paths: Sequence[Sequence[_Span]], asked: Sequence[int]
) -> tuple[list[int], list[list[int]], list[int]]:
    """Split the blocks into pieces that every visit uses as a whole, cut wherever a visit's blocks
    or its prompt end.

    Returns the first block of each piece, each visit as a list of pieces, and how many pieces of
    each visit are in its prompt.
    """
    cuts = {bound for path in paths for span in path for bound in span}
    for path, left in zip(paths, asked, strict=True):
        for first, behind in path:
            cuts.add(first + min(left, behind - first))
            left = max(0, left - (behind - first))
    bounds = sorted(cuts)
    pieces, usable = [], []
    for path, left in zip(paths, asked, strict=True):
        cut = [range(*(bisect_left(bounds, bound) for bound in span)) for span in path]
        pieces.append([piece for span in cut for piece in span])
        taken = 0
        for piece in pieces[-1]:
            left -= bounds[piece + 1] - bounds[piece]
            if left < 0:
                break
            taken += 1
        usable.append(taken)
    return bounds, pieces, usable


def _next_uses(
    paths: Sequence[list[int]], usable: Sequence[int], moments: Sequence[VisitEvent]
) -> dict[int, list[int]]:
    """For each visit and each of its pieces: the next event after the visit's end at which another
    visit looks the piece up.

    _NEVER if that visit computes the piece in any case, hit or not.
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
