import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.report import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.0123"), (4.567, "4.57"), (45.67, "45.7"), (118784, "118,784"),
     (-4.567, "-4.57")],
)  # fmt: skip
def test_numbers_have_three_significant_figures_and_uncut_integers(value, text):
    assert numbers.figures(value) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0, "0 %"), (0.0004, "< 0.1 %"), (0.0042, "0.4 %"), (0.0996, "10 %"), (0.0994, "9.9 %"),
     (0.5749, "57 %"), (0.9995, "> 99.9 %"), (1, "100 %"), (None, "–")],
)  # fmt: skip
def test_percent_never_rounds_to_zero_or_one_hundred(fraction, text):
    assert numbers.percent(fraction) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 s"), (0.34, "340 ms"), (4.567, "4.57 s"), (95, "95.0 s"), (737, "12.3 min"),
     (9000, "2.50 h"), (2.5e-6, "2.50 µs"), (1e-9, "0.001 µs"), (None, "–")],
)  # fmt: skip
def test_times_are_printed_in_a_suitable_unit(value, text):
    assert numbers.seconds(value) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "0 B"), (1023, "1,023 B"), (36.2 * 2**30, "36.2 GiB")]
)
def test_sizes_are_printed_in_binary_units(num_bytes, text):
    assert numbers.size(num_bytes) == text


@given(st.floats(min_value=1e-6, max_value=1e7))
def test_formatted_time_parses_back_within_one_percent(value):
    text, unit = numbers.seconds(value).split()
    unit_s = {"h": 3600, "min": 60, "s": 1, "ms": 1e-3, "µs": 1e-6}[unit]
    assert math.isclose(float(text.replace(",", "")) * unit_s, value, rel_tol=0.01)


def test_counts_and_lists_are_formatted_as_words():
    assert numbers.plural(1, "request") == "1 request"
    assert numbers.plural(19366, "request") == "19,366 requests"
    assert [numbers.listed(x) for x in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "", "a", "a and b", "a, b and c",
    ]  # fmt: skip
    assert (numbers.times(2.0), numbers.times(4.43), numbers.times(31.2)) == (
        "twice", "4.4 times", "31 times",
    )  # fmt: skip
