"""Belady's bound over pieces equals the same rule over single blocks."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.whatif.cache_curve.belady import CacheVisit, VisitEvent, most_hits


def block_by_block(paths: list[str], asked: list[int], moments: list[Any], room: int) -> int:
    """Hits in blocks, computed block by block; a path is a word, a block one of its prefixes."""
    holders: list[str] = []
    kept: dict[str, int] = {}
    hits = 0
    for now, (visit, ends) in enumerate(moments):
        blocks = [paths[visit][: end + 1] for end in range(len(paths[visit]))]
        if not ends:
            for block in blocks[: asked[visit]]:
                if block not in kept and block not in holders:
                    break
                hits += 1
            for block in blocks:
                kept.pop(block, None)
            holders += blocks
            continue
        for block in blocks:
            holders.remove(block)
        for block in set(blocks) - set(holders):
            for at in range(now + 1, len(moments)):
                coming, is_end = moments[at]
                if not is_end and paths[coming].startswith(block):
                    if len(block) <= asked[coming]:
                        kept[block] = at
                    break
        while len(kept) > room:
            del kept[max(kept, key=lambda block: (kept[block], len(block)))]
    return hits


@settings(max_examples=300, deadline=None)
@given(data=st.data(), room=st.integers(0, 9))
def test_belady_over_pieces_equals_single_blocks(data: Any, room: int) -> None:
    words = data.draw(st.lists(st.text("ab", min_size=1, max_size=6), min_size=2, max_size=8))
    asked = [data.draw(st.integers(0, len(word))) for word in words]
    visits = []
    for word, count in zip(words, asked, strict=True):
        runs = tuple((100 * at + 4 * ord(letter), 4) for at, letter in enumerate(word))
        visits.append(CacheVisit(4 * count + 1, runs))
    begun: list[int] = []
    moments: list[VisitEvent] = []
    for number in range(len(words)):
        moments.append(VisitEvent(number, ends=False))
        begun.append(number)
        while begun and data.draw(st.booleans()):
            over = begun.pop(data.draw(st.integers(0, len(begun) - 1)))
            moments.append(VisitEvent(over, ends=True))
    moments += [VisitEvent(number, ends=True) for number in begun]
    assert most_hits(visits, moments, room, 4) == 4 * block_by_block(words, asked, moments, room)
