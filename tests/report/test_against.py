"""The scatter plot of predicted against measured times, and the page of a fit."""

import math

from hypothesis import given
from hypothesis import strategies as st
from support.pages import figures

from kvsim.report.against import MOST_POINTS, AgainstPanel, MeasuredPairs, against
from kvsim.report.parity import parity_page
from kvsim.step import StepShape
from kvsim.step_time.calibrated.samples import KINDS, Sample, kind_of

TIMES = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=20)


@given(TIMES, TIMES)
def test_axes_have_round_ticks_and_contain_every_point(measured, predicted):
    pairs = list(zip(measured, predicted, strict=False))
    panel = AgainstPanel("t, ms", [MeasuredPairs("a", *map(list, zip(*pairs, strict=True)))])
    figure = against([panel])
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        low, high = (10**end for end in axis.range)
        assert all(low < value < high for pair in pairs for value in pair)
        assert 2 <= len(axis.tickvals) <= 12
        for tick in axis.tickvals:
            size = tick / 10 ** math.floor(math.log10(tick) + 1e-9)
            assert min(abs(size - round_one) for round_one in (1, 2, 5)) < 1e-6


def test_parity_figure_draws_the_diagonal_and_thins_many_points():
    many = [1.0 + at for at in range(5 * MOST_POINTS)]
    figure = against([AgainstPanel("t, ms", [MeasuredPairs("a", many, many[::-1])])])
    dots, line = figure.data
    assert 0 < len(dots.x) <= MOST_POINTS
    assert list(line.x) == list(line.y)


def test_label_keeps_its_colour_across_panels_and_two_labels_get_a_legend():
    two = [MeasuredPairs("vllm", [1.0], [2.0]), MeasuredPairs("sglang", [2.0], [2.0])]
    figure = against([AgainstPanel("a, ms", two), AgainstPanel("b, ms", two[1:])])
    hues = {(each.name, each.marker.color) for each in figure.data if each.mode == "markers"}
    assert len(hues) == 2
    assert figure.layout.showlegend
    assert sum(bool(each.showlegend) for each in figure.data) == 2
    assert not against([AgainstPanel("a, ms", two[:1])]).layout.showlegend


def test_parity_figure_without_points_is_none():
    assert against([AgainstPanel("t, ms", [MeasuredPairs("a", [], [])])]) is None
    assert against([AgainstPanel("t, ms", [MeasuredPairs("a", [0.0], [1.0])])]) is None


def test_fit_page_is_small_and_reports_the_error():
    shapes = [StepShape((), seqs, 50 * seqs) for seqs in range(1, 40)]
    samples = [Sample(shape, 1e-3 * (5 + shape.num_decode)) for shape in shapes]
    page = parity_page("Held-out steps of x<b>.csv", samples, [0.02, -0.04, 0.03] * 13)
    kind = kind_of(shapes[0])
    assert kind in KINDS
    assert f"Mean error of steps that the fit did not see: 3.0 % over 39 {kind} steps." in page
    assert "x&lt;b&gt;.csv" in page
    assert set(figures(page)) == {"figure-steps", "figure-errors"}
    assert len(page) < 900_000
