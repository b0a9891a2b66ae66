"""Differences as the tables of what-if print them."""

from kvsim.whatif.intervals import UNSEEN, difference_text


def test_a_large_difference_has_no_exponent() -> None:
    """Once `+2.58e+03 %`."""
    assert difference_text([0.4], [11.0]) == "+2,650 %"
    assert difference_text([0.4], [11.0], times=True) == "+2,650 %"
    assert difference_text([1.0], [10.996]) == "+1,000 %"
    assert difference_text([1.0], [1.411]) == "+41.1 %"
    assert difference_text([1.0], [1.0]) == UNSEEN
