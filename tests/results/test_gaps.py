"""TokenGaps, which stores runs of equal gaps, has the mean and quantiles of all gaps."""

from array import array
from itertools import chain

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.results.gaps import TokenGaps, exact_dot

LARGE = st.integers(-(1 << 62), 1 << 62)
STRETCHES = st.lists(
    st.tuples(
        st.integers(1, 5), st.integers(1, 7), st.integers(0, 300), st.sampled_from([0, 1, 7, 90])
    ),
    max_size=8,
)


@settings(deadline=None)
@given(stretches=STRETCHES, singles=st.lists(st.integers(0, 900), max_size=5))
def test_token_gaps_equal_a_list_of_gaps(
    stretches: list[tuple[int, int, int, int]], singles: list[int]
) -> None:
    all_ = singles + [
        first + growth * t
        for count, steps, first, growth in stretches
        for t in range(steps)
        for _ in range(count)
    ]
    gaps = TokenGaps(array("q", chain.from_iterable(stretches)), array("q", singles))
    assert gaps.num == len(all_)
    if all_:
        assert gaps.mean_ps() == sum(all_) / len(all_)
        shares = (0.0, 0.3, 0.5, 0.99, 1.0)
        assert np.allclose(gaps.quantiles_ps(shares), np.quantile(all_, shares), rtol=1e-12, atol=0)


@settings(deadline=None)
@given(st.lists(st.tuples(LARGE, LARGE), max_size=9))
def test_exact_dot_equals_python_integers(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
    assert exact_dot(a, b) == sum(x * y for x, y in pairs)
