import base64
import json
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.pages import figures, letters_of, text_of

from kvsim.plumbing.toml import to_toml
from kvsim.report import address_map, filled_page, numbers, request_list
from kvsim.report.address_map import address_maps
from kvsim.report.cards import AT_WORK, CARDS, cards
from kvsim.report.classes import LOOKS
from kvsim.report.figures import FIGURES
from kvsim.report.filled_page import SCRIPTS
from kvsim.report.packing import packed, packed_differences
from kvsim.report.page import make_page
from kvsim.report.template import whole_flags
from kvsim.results.result import Result

LOADING = {"src", "href", "srcset", "data", "action", "poster", "background"}


class Reader(HTMLParser):
    """Collects the URLs that a browser would load, the scripts, and the text of a page."""

    def __init__(self):
        super().__init__()
        self.loads, self.scripts, self.text, self.tags, self.policy = [], [], [], [], ""
        self.script = False

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.script = tag == "script"
        self.loads += [
            (tag, name, value)
            for name, value in attrs
            if name in LOADING and not value.startswith("#")
        ]
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"]

    def handle_endtag(self, tag):
        self.script = False

    def handle_data(self, data):
        (self.scripts if self.script else self.text).append(data)


def read(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def test_the_page_loads_nothing_and_tells_the_browser_so(result):
    page = make_page(result)
    reader = read(page)
    assert reader.loads == []
    assert reader.policy.startswith("default-src 'none'")
    assert not {"link", "iframe", "img", "object", "embed", "base"} & set(reader.tags)
    assert not re.search(r"https?://|@import|url\(", page)


def test_page_explains_best_value_dots_only_if_it_has_any(result):
    text = " ".join("".join(read(make_page(result)).text).split())
    assert "A dot marks the best value" in text
    alone = make_page(Result(result.scenario, result.runs[:1]))
    assert "dot marks" not in alone
    assert "No dots" not in alone
    same = [replace(run, label=label) for label, run in zip("ab", result.runs[:1] * 2, strict=True)]
    assert "No dots" in make_page(Result(result.scenario, tuple(same)))


def test_page_contains_plotly_once_if_it_has_figures(odd_result):
    page = make_page(odd_result)
    assert page.count('id="plotly"') == bool(figures(page))
    if not figures(page):
        return
    library = letters_of(page, "plotly")
    assert text_of(library).startswith("/**\n* plotly.js (basic - minified) v")
    assert "MIT license" in text_of(library)[:300]
    assert len(page) - len(library) < 700_000


def test_every_figure_of_a_traced_result_is_on_the_page(traced, treed):
    usual = make_page(traced)
    pages = {name: usual for name in FIGURES if name not in ("tree", "lanes", "tiers", "links")}
    for name, page in {**pages, "tree": make_page(treed)}.items():
        assert figures(page)[f"figure-{name}"]["data"]
        assert f'data-figure="figure-{name}"' in page


def test_page_names_figures_without_data(odd_result):
    page = make_page(odd_result)
    for name in FIGURES:
        figure = FIGURES.get(name)()
        drawn = f'id="figure-{name}"' in page
        assert drawn or figure.nothing in page


def test_page_footer_shows_provenance(result):
    text = "".join(read(make_page(result)).text)
    assert f"Made by kvsim {result.version}" in text
    assert to_toml(result.scenario).strip() in text


def test_labels_cannot_break_the_page(hostile):
    page = make_page(hostile)
    reader = read(page)
    assert "b" not in reader.tags
    # One script per figure that is drawn, the numbers, plotly, and the scripts' own files.
    drawn = page.count('<div class="plot"')
    assert reader.tags.count("script") == drawn + 2 + len(SCRIPTS)
    assert 'max "</script><b>' not in page


def test_equal_results_make_equal_pages(result):
    assert make_page(result) == make_page(result)


def test_page_lists_dropped_requests_at_the_top(result):
    page = make_page(result)
    assert "Requests: clipped 2 of 120 prompts to 900 tokens." in page
    assert page.index("Requests: clipped") < page.index('id="numbers"')


def test_the_first_screen_has_the_verdict_the_bars_and_the_four_numbers(traced):
    page = make_page(traced)
    assert page.count('<section class="card">') == 4
    order = ('class="words"', "kvsim doctor", 'id="shares"', 'class="card"', 'id="numbers"')
    assert [page.index(each) for each in order] == sorted(page.index(each) for each in order)


def test_figures_with_ledger_classes_have_a_legend_of_those_drawn(traced):
    page = make_page(traced)
    drawn = figures(page)
    assert page.count('<p class="keys">\n<span><i class="swatch') == 3
    for name in ("lost", "ledger"):
        part = page[page.index(f'<section id="{name}">') : page.index(f'id="figure-{name}"')]
        named = re.findall(r'class="swatch(?: hatched)?" style="[^"]*"></i>([a-z]+)<', part)
        traces = {trace["name"] for trace in drawn[f"figure-{name}"]["data"]}
        assert named
        assert set(named) == traces & {look.name for look in LOOKS}


def test_legend_of_the_first_figure_omits_invisible_classes(traced):
    part = make_page(traced)
    part = part[part.index('<section id="shares">') : part.index('class="cards"')]
    named = re.findall(r'class="swatch(?: hatched)?" style="[^"]*"></i>([a-z]+)<', part)
    shares = [run.summary.memory.time_mean for run in traced.runs]
    for look in LOOKS:
        assert (look.name in named) == any(each.of(look.name) >= 0.001 for each in shares)


def test_page_does_not_break_lines_inside_flags_or_short_labels(traced):
    said = whole_flags("--max-num-seqs 16 <b> a--b x --no-async")
    assert said == (
        '<span class="whole">--max-num-seqs</span> 16 &lt;b&gt; a--b x '
        '<span class="whole">--no-async</span>'
    )
    assert '<strong class="whole">max-buffer</strong>' in make_page(traced)


def test_label_is_bold_in_full_if_another_label_is_its_prefix():
    """A space between a digit and a short word in a label was once taken for one before a unit."""
    said = filled_page.with_labels("b16 before “b16 no cache” took 16 ms.", ["b16", "b16 no cache"])
    assert said == (
        '<strong class="whole">b16</strong> before <strong class="whole">“b16 no cache”</strong> '
        "took 16\N{NO-BREAK SPACE}ms."
    )


def test_longest_bar_of_a_card_is_the_best_run(traced):
    for card, measure in zip(cards(traced), CARDS, strict=True):
        values = [measure.value(run.summary) for run in traced.runs]
        shares = [line.share for line in card.lines]
        ranked = sorted(zip(values, shares, strict=True), reverse=measure.better != "lower")
        assert max(shares) == (max(values) if measure is AT_WORK else 1.0)
        assert [share for _, share in ranked] == sorted(shares, reverse=True)
    said = "A longer bar is better for output tokens per second and time to first token; "
    assert said in make_page(traced)
    alone = Result(traced.scenario, traced.runs[:1])
    assert "A longer bar" not in make_page(alone)


def test_card_bars_are_scaled_without_runs_that_lack_the_number(
    one_of_two,
):
    """A run that served nothing once had the longest bar, because its latency was missing."""
    ran, empty = one_of_two.runs
    assert empty.summary.ttft_s.p50 is None
    first_token = cards(one_of_two)[1]
    assert [(line.text, line.share) for line in first_token.lines] == [
        (numbers.seconds(ran.summary.ttft_s.p50), None),  # it has nothing to be compared with
        (numbers.NOTHING, None),
    ]
    page = make_page(one_of_two)
    nothing = sum(line.share is None for card in cards(one_of_two) for line in card.lines)
    assert page.count('<span class="bar none"></span>') == nothing
    assert page.count('<span class="bar"><span') == 8 - nothing


def test_page_does_not_call_ledger_classes_below_the_threshold_absent(traced):
    """A class with 0.05 % of the pool was once listed under "which no run had"."""
    page = make_page(traced)
    said = "The other classes, which took less than 0.1 % on average or did not occur"
    assert said in page
    assert "which no run had" not in page


def embedded(page):
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(data.group(1))


def unpacked(text):
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(4, -1)
    return np.ascontiguousarray(planes.T).view("<u4").ravel().astype(np.int64)


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_packed_numbers_are_unpacked_unchanged(values):
    assert unpacked(packed(np.array(values, dtype=np.int64))).tolist() == values
    ascending = sorted(values)
    steps = unpacked(packed_differences(np.array(ascending)))
    assert np.cumsum(steps).tolist() == ascending


def test_address_map_on_the_page_equals_the_address_table(traced):
    data = embedded(make_page(traced))
    for run, drawn, listed in zip(traced.runs, data["maps"], data["requests"]["runs"], strict=True):
        unit, tick = drawn["unit_bytes"], drawn["span_s"] * 1e12 / drawn["ticks"]
        places = np.cumsum(unpacked(drawn["start"]))
        times = np.cumsum(unpacked(drawn["times"]))
        start, end = times[places], times[places + unpacked(drawn["length"])]
        stays = run.table("addresses")
        owner = stays["request"].map({name: at for at, name in enumerate(run.requests["id"])})
        stays = stays.iloc[np.lexsort((stays["address"], owner, stays["start_ps"]))]
        assert drawn["num"] == len(stays)
        assert (unpacked(drawn["address"]) * unit == stays["address"]).all()
        assert (unpacked(drawn["units"]) * unit == stays["num_bytes"]).all()
        assert np.abs(start * tick - stays["start_ps"]).max() <= tick
        assert np.abs(end * tick - stays["end_ps"]).max() <= tick
        ids = json.loads(text_of(listed["ids"] or data["requests"]["runs"][0]["ids"]))
        assert [ids[owner] for owner in unpacked(drawn["owner"])] == stays["request"].tolist()
        assert (unpacked(drawn["kept"]) == (stays["kind"] == "cached")).all()


def test_crowded_address_map_has_a_correct_raster_and_a_complete_detail(traced, monkeypatch):
    monkeypatch.setattr(address_map, "MOST_STAYS", 1500)
    run = traced["paged"]
    stays = run.table("addresses")
    places = {str(name): at for at, name in enumerate(run.requests["id"])}
    (drawn,) = address_maps(Result(traced.scenario, (run,)), (places,))
    low, high = drawn["detail"]
    tick = drawn["span_s"] * 1e12 / drawn["ticks"]
    shown = (stays["end_ps"] >= (low + 1) * tick) & (stays["start_ps"] <= (high - 1) * tick)
    assert shown.sum() <= drawn["num"] <= 1500
    cells = unpacked(drawn["picture"]["cells"]).reshape(address_map.COLUMNS, address_map.ROWS)
    units = drawn["capacity_bytes"] // drawn["unit_bytes"]
    rng = np.random.default_rng(0)
    for _ in range(300):
        column, row = rng.integers(address_map.COLUMNS), rng.integers(address_map.ROWS)
        now = (column + 0.5) / address_map.COLUMNS * drawn["span_s"] * 1e12
        at = (row + 0.5) / address_map.ROWS * units * drawn["unit_bytes"]
        there = stays[
            (stays["start_ps"] <= now - tick) & (stays["end_ps"] > now + tick)
            & (stays["address"] <= at) & (stays["address"] + stays["num_bytes"] > at)
        ]  # fmt: skip
        if len(there):
            owner, kept = divmod(int(cells[column, row]), 2)
            assert (owner, kept) == (
                places[there["request"].iloc[0]], there["kind"].iloc[0] == "cached",
            )  # fmt: skip


def test_shortened_request_list_contains_the_slowest_requests(traced, monkeypatch):
    monkeypatch.setattr(request_list, "MOST_ROWS", 60)
    monkeypatch.setattr(request_list, "LEAST_ROWS", 20)
    made = request_list.request_list(traced)
    run = traced.runs[0]
    took = (run.requests["finish_ps"] - run.requests["arrival_ps"]).to_numpy()
    slowest = run.requests["id"].iloc[np.argsort(took, kind="stable")[-4:]]
    assert set(slowest) <= made.places[0].keys()
    assert len(made.places[0]) <= 20
    assert made.left_out == sum(len(run.requests) for run in traced.runs) - sum(
        len(places) for places in made.places
    )
