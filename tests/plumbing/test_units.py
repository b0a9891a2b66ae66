"""Times and ratios are rounded once, however large the integers are."""

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from kvsim.plumbing.units import PS_PER_S, ratio, seconds_from_ps

LARGE = st.integers(0, 1 << 80)


@given(LARGE, st.integers(1, 1 << 80))
@example((1 << 53) + 1, PS_PER_S)
def test_a_ratio_is_the_nearest_float(numerator: int, denominator: int) -> None:
    assert ratio(numerator, denominator) == float(Fraction(numerator, denominator))


@given(LARGE)
@example(9_007_199_254_740_993)
def test_seconds_are_the_nearest_float(ps: int) -> None:
    assert seconds_from_ps(ps) == float(Fraction(ps, PS_PER_S))
