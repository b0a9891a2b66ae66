"""Texts of differences in the tables of what-if commands."""

from kvsim.whatif.intervals import UNSEEN, difference_text, more_seeds


def test_a_large_difference_has_no_exponent() -> None:
    """The text was once `+2.58e+03 %`."""
    assert difference_text([0.4], [11.0]) == "+2,650 %"
    assert difference_text([0.4], [11.0], times=True) == "+2,650 %"
    assert difference_text([1.0], [10.996]) == "+1,000 %"
    assert difference_text([1.0], [1.411]) == "+41.1 %"
    assert difference_text([1.0], [1.0]) == UNSEEN


def test_wide_interval_around_zero_cannot_be_distinguished() -> None:
    two = "cannot be distinguished by 2 seeds"
    assert difference_text([0.06, 2250.0], [0.05, 2300.0], times=True) == two
    assert difference_text([3.0, 5.0], [0.04, 0.05]) == two
    assert difference_text([0.0, 0.0], [0.0, 7.0]) == two
    assert difference_text([0.0, 0.0], [0.0, 0.0]) == UNSEEN
    assert difference_text([1.0, 2.0, 3.0], [1.001, 1.999, 3.001], times=True) == UNSEEN
    assert difference_text([1.0, 2.0, 3.0], [1.001, 1.999, 3.001]) == UNSEEN
    assert more_seeds(["+12 %", two], 2) == "Add --repeat 5."
    assert more_seeds([two], 5) == "Add --repeat 10."
    assert more_seeds([UNSEEN, "the same"], 2) is None
