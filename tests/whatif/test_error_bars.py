"""Error bars end at possible values, do not cover each other, and are marked if cut."""

import math
from itertools import pairwise

import pytest

from kvsim.report import numbers
from kvsim.whatif.crowded import beside, cut_marks, room_for_ends
from kvsim.whatif.error_bars import error_bars
from kvsim.whatif.whiskers import Whisker, whiskers


def test_error_bars_are_cut_at_zero() -> None:
    bars = error_bars([1.0, 5.0], [3.0, 2.0])
    assert bars is not None
    assert bars["arrayminus"] == [1.0, 2.0]
    assert bars["array"] == [3.0, 2.0]
    assert error_bars([1.0, 2.0], [0.0, 0.0]) is None


def test_error_bars_are_cut_at_the_largest_possible_value() -> None:
    """Goodput once had an interval up to 14 requests/s where 4 arrived."""
    bars = error_bars([4.0, 3.0], [10.0, 0.5], most=[4.0, 4.0])
    assert bars is not None
    assert bars["array"] == [0.0, 0.5]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("places", [[8.0, 16.0, 32.0, 64.0], [1.0, 1.001, 50.0], [3.0]])
def test_lines_with_equal_x_are_offset_in_order(places: list[float], *, log: bool) -> None:
    lines = [beside(places, line, 3, log=log) for line in range(3)]
    assert lines[1] == pytest.approx(places)
    if len(places) > 1:
        columns = list(zip(*lines, strict=True))
        assert all(a < b < c for a, b, c in columns)
        assert all(left[2] < right[0] for left, right in pairwise(columns))
    low, high = room_for_ends(places, log=log)
    shown = [math.log10(each) if log else each for each in places]
    assert low < min(shown) <= max(shown) < high


def test_interval_beyond_its_panel_has_an_arrow_labelled_with_its_end() -> None:
    marks = cut_marks([1.0, 2.0], [5.0, 90.0], 10.0, numbers.seconds, 0)
    assert marks is not None
    assert (marks["x"], marks["text"]) == ([2.0], ["90.0 s"])
    assert marks["y"] == [pytest.approx(9.2)]
    assert marks["mode"] == "markers+text"
    crowd = cut_marks([float(x) for x in range(9)], [90.0] * 9, 10.0, numbers.seconds, 0)
    assert crowd is not None
    assert crowd["mode"] == "markers"
    assert cut_marks([1.0], [5.0], 10.0, numbers.seconds, 0) is None


def test_whisker_beyond_the_axis_has_an_arrow_labelled_with_its_end() -> None:
    """An interval up to 12.5 once exceeded an axis that ended at 8.2, without a mark."""
    rows = [
        Whisker("max-buffer", 0.04, 0.0, 0.2, "0.04 ± 0.15", False),
        Whisker("paged", 3.9, 0.0, 12.5, "3.9 ± 8.6", True),
    ]
    figure = whiskers(rows, "requests/s")
    assert figure is not None
    assert figure.layout.xaxis.range[1] > 12.5
    assert len(figure.layout.annotations) == 2
    wide = whiskers([*rows, Whisker("doubling", -2.0, -400.0, 70.0, "2", False)], "requests/s")
    assert wide is not None
    low, high = wide.layout.xaxis.range
    ends = {note.text: (note.x, note.y) for note in wide.layout.annotations[3:]}
    assert ends == {
        "\N{LEFTWARDS ARROW} to -400": (low, 2),
        "to 70.0 \N{RIGHTWARDS ARROW}": (high, 2),
    }


def test_long_row_names_wrap_to_a_phones_width() -> None:
    """Numbers after long names were once cut at the right edge of a phone."""
    row = Whisker(
        "gpu_memory_utilization = 0.9", 1.0, 0.5, 2.0, "+0.0036 % (-0.012 to +0.019)", True
    )
    long = "max_num_seqs = 64, block_size = 16, enable_chunked_prefill = false"
    figure = whiskers([row, Whisker(long, 1.0, 0.5, 2.0, "+1 %", False)], "change, %")
    assert figure is not None
    first, second = (note.text.split("<br>") for note in figure.layout.annotations)
    assert first == ["<b>gpu_memory_utilization = 0.9</b>", "+0.0036 % (-0.012 to +0.019)"]
    assert len(second) == 3
    assert max(len(line.replace("<b>", "").replace("</b>", "")) for line in second) <= 42
    short = whiskers([row._replace(label="a", text="1 s")], "s")
    assert short is not None
    assert short.layout.annotations[0].text == "<b>a</b>: 1 s"
    assert figure.layout.height > short.layout.height + 46
