"""Free pages: an allocated page has one owner, follows the previous page if free, and is freed
whole.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.engine.addresses.free_pages import FreePages
from kvsim.plumbing.errors import InvariantError

STEPS = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 5)), max_size=40)


@given(STEPS)
def test_every_page_is_free_or_has_one_owner(steps: list[tuple[int, int]]) -> None:
    free, holders = FreePages(60), [list[int]() for _ in range(6)]
    for num, who in steps:
        held = holders[who]
        if num > free.num:
            for page in held:
                free.give(page, 1)
            held.clear()
            continue
        others = {page for other in holders for page in other}
        after = held[-1] + 1 if held else -1
        taken = [first + at for first, some in free.take(num, after) for at in range(some)]
        assert len(taken) == num
        assert not others & set(taken)
        assert not held or after in others or after == 60 or taken[0] == after
        held += taken
        assert free.num == 60 - sum(map(len, holders))
    for held in holders:
        for page in held:
            free.give(page, 1)
    assert free.take(60, 0) == [(0, 60)]


def test_page_numbers_never_exceed_the_pool() -> None:
    with pytest.raises(InvariantError):
        FreePages(3).take(4, -1)
