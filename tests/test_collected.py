"""The number of test cases is limited before the suite takes too long."""

from collections import Counter

import pytest
from support.pairs import is_whole
from support.quick import SCHEDULES

# More settings go pairwise (support/pairs.py), more names into one test (support/each.py).
MOST_CASES = 100  # of one test
MOST_CASES_OF_ALL = 7000


@pytest.mark.skipif(is_whole(), reason="KVSIM_WHOLE asks for whole products")
def test_no_test_has_more_cases_than_it_needs(request: pytest.FixtureRequest) -> None:
    """Recorded schedules are exempt: each case covers something of its own."""
    names = Counter(item.nodeid.partition("[")[0] for item in request.session.items)
    many = {name: num for name, num in names.items()
            if num > MOST_CASES and not name.startswith(SCHEDULES)}  # fmt: skip
    assert not many, "pairwise (support/pairs.py), or in one test (support/each.py)"
    assert names.total() <= MOST_CASES_OF_ALL
