"""No interval reaches below 0, where the number cannot be."""

from kvsim.whatif.error_bars import error_bars


def test_bars_end_at_zero_and_are_whole_above() -> None:
    bars = error_bars([1.0, 5.0], [3.0, 2.0])
    assert bars is not None
    assert bars["arrayminus"] == [1.0, 2.0]
    assert bars["array"] == [3.0, 2.0]
    assert error_bars([1.0, 2.0], [0.0, 0.0]) is None
