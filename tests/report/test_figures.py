import json
import math

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.each import check_each

from kvsim.memory.ledger import CLASSES
from kvsim.report import latency, numbers
from kvsim.report.classes import LOOKS
from kvsim.report.cumulative import thinned
from kvsim.report.figure import plain
from kvsim.report.figures import FIGURES


def test_every_ledger_class_has_a_distinct_colour_and_pattern():
    assert sorted(look.name for look in LOOKS) == sorted(CLASSES)
    assert len({(look.colour, look.pattern) for look in LOOKS}) == len(CLASSES)


@pytest.mark.parametrize("name", list(FIGURES))
def test_a_figure_draws_any_result_or_says_that_there_is_nothing(name, odd_results):
    check_each(odd_results, lambda odd: check_figure(name, odd_results[odd]))


def check_figure(name, result):
    figure = FIGURES.get(name)()
    plot = figure.draw(result)
    assert figure.title
    assert figure.note
    assert figure.nothing
    if plot is not None:
        assert isinstance(plot, go.Figure)
        assert plot.layout.height > 0
        assert len(plot.data) > 0
        json.loads(plot.to_json())


@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_draws_every_run_of_a_traced_result(name, traced, treed):
    if name in ("lanes", "tiers", "links"):
        assert FIGURES.get(name)().draw(traced) is None  # it has no replicas, tiers or links
        return
    result = treed if name == "tree" else traced
    drawn = FIGURES.get(name)().draw(result).to_json()
    labels = ["paged"] if name == "hits" else [run.label for run in result.runs]
    assert all(label in drawn for label in labels)


@pytest.mark.parametrize("name", list(FIGURES))
def test_labels_are_escaped_in_figures(name, hostile):
    figure = FIGURES.get(name)().draw(hostile)
    if figure is not None:
        assert "<b>x" not in figure.to_json()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a < b & c", "a &lt; b &amp; c"),
        ("two\nlines", "two lines"),
        ("x" * 100, "x" * 59 + "…"),
        ("\u05d0\u05d1", "\u2068\u05d0\u05d1\u2069"),
    ],
)
def test_users_texts_are_escaped_for_plotly(text, shown):
    assert plain(text) == shown


def test_drawn_preemptions_sum_to_the_summary(traced):
    plot = FIGURES.get("events")().draw(traced)
    panels = {note.text: index for index, note in enumerate(plot.layout.annotations)}
    traces = len(traced.runs)
    for index, run in enumerate(traced.runs):
        (place,) = (
            at for name, at in panels.items() if name.startswith("<b>preemptions, in each ")
        )
        at = place * traces + index
        assert math.isclose(np.sum(plot.data[at].y), run.summary["preemptions"], rel_tol=1e-5)


def test_event_panel_titles_state_the_bucket_width(traced):
    plot = FIGURES.get("events")().draw(traced)
    end_s = max(run.memory["end_ps"].max() for run in traced.runs) / 1e12
    width = numbers.seconds(end_s / 240)
    assert all(note.text.endswith(f", in each {width}</b>") for note in plot.layout.annotations)
    apart_s = float(plot.data[0].x[1] - plot.data[0].x[0]) * plot.layout.meta["unit_s"]
    assert numbers.seconds(apart_s) == width


def test_lost_sequences_figure_equals_a_hand_count(traced):
    plot = FIGURES.get("lost")().draw(traced)
    used = next(bar for bar in plot.data if bar.name == "used")
    over = next(bar for bar in plot.data if bar.name == "overprovisioned")
    for at, run in enumerate(traced.runs):
        shares = run.summary["memory"]["time_mean"]
        assert math.isclose(used.x[at], run.summary["running_mean"])
        lost = run.summary["running_mean"] * shares["overprovisioned"] / shares["used"]
        assert math.isclose(over.x[at], lost, abs_tol=1e-12)


@pytest.mark.parametrize("name", list(FIGURES))
def test_drawing_figures_does_not_change_the_result(name, result):
    before = [(run.requests.copy(), run.memory.copy()) for run in result.runs]
    FIGURES.get(name)().draw(result)
    for run, (requests, memory) in zip(result.runs, before, strict=True):
        assert run.requests.equals(requests)
        assert run.memory.equals(memory)


def test_bars_sum_to_the_pool(result):
    plot = FIGURES.get("shares")().draw(result)
    for at in range(len(result.runs)):
        assert math.isclose(sum(bar.x[at] for bar in plot.data), 1, abs_tol=1e-12)


def test_areas_sum_to_the_pool_at_every_point(result):
    plot = FIGURES.get("ledger")().draw(result)
    for group in ("1", "2", "3"):
        areas = [np.asarray(trace.y) for trace in plot.data if trace.stackgroup == group]
        assert np.allclose(np.sum(areas, axis=0), 100, atol=1e-3)


def test_ledger_area_of_a_class_equals_its_time_mean(result):
    plot = FIGURES.get("ledger")().draw(result)
    for row, run in enumerate(result.runs, start=1):
        for trace in plot.data:
            if trace.stackgroup == str(row):
                mean = 100 * run.summary["memory"]["time_mean"][trace.name]
                assert math.isclose(np.mean(trace.y), mean, rel_tol=1e-3)


def test_wait_figure_equals_a_hand_count(result):
    requests = result.runs[0].requests
    row = requests.iloc[5]
    at = int((requests["status"] == "finished").iloc[:5].sum())
    assert latency.ttft_s(requests)[at] == (row.first_token_ps - row.arrival_ps) / 1e12
    assert latency.e2e_s(requests)[at] == (row.finish_ps - row.arrival_ps) / 1e12
    assert latency.queue_s(requests)[at] == (row.scheduled_ps - row.arrival_ps) / 1e12
    several = requests[requests["output_tokens"] > 1]
    first = several.iloc[0]
    gap_s = (first.finish_ps - first.first_token_ps) / 1e12 / (first.output_tokens - 1)
    assert math.isclose(latency.tpot_s(requests)[0], gap_s)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=600, unique=True))
def test_a_thinned_distribution_passes_through_points_of_the_whole_one(values):
    values = np.array(values)
    x, share = thinned(values)
    assert share[0] == 0
    assert share[-1] == 1
    assert x[-1] == values.max()
    assert (np.diff(x) >= 0).all()
    for at, height in zip(x[1:], share[1:], strict=True):
        assert math.isclose(height, (values <= at).mean())
    assert len(x) <= 300


def test_radix_tree_figure_equals_its_counts(treed):
    """Every admission is a hit of some depth; each evicted or remaining node was computed once."""
    for run in treed.runs:
        nodes = run.table("nodes")
        hits = nodes[nodes["event"] == "hit"]
        preemptions = run.summary["preemptions"]
        assert len(hits) == run.summary["requests"]["finished"] + preemptions
        if not preemptions:
            assert hits["tokens"].sum() == run.summary["prefix_cache"]["hit_tokens"]
        assert (hits["nodes"] <= hits["tokens"]).all()
        gone = nodes[nodes["event"] == "evicted"]
        left = nodes[nodes["event"] == "left"]
        assert len(gone)
        assert (gone["age_ps"] >= 0).all()
        assert left["tokens"].sum() <= run.summary["memory"]["capacity_tokens"]
        table = run.requests
        made = (table["prompt_tokens"] + table["output_tokens"]).sum()
        assert gone["tokens"].sum() + left["tokens"].sum() <= made + hits["tokens"].sum()


def test_radix_tree_figure_shows_the_counted_share_of_misses(treed):
    plot = FIGURES.get("tree")().draw(treed)
    nodes = treed.runs[0].table("nodes")
    hits = nodes.loc[nodes["event"] == "hit", "tokens"]
    curve = plot.data[0]
    missed = np.interp(0.5, curve.x, curve.y) if curve.x[0] > 0.5 else curve.y[curve.x <= 0.5][-1]
    assert math.isclose(missed, 100 * (hits == 0).mean(), abs_tol=1.5)
    assert len(plot.data) == 3 * len(treed.runs)
