import json
import re
from html.parser import HTMLParser

from plotly.offline import get_plotlyjs

from kvsim.plumbing.toml import to_toml
from kvsim.report.figures import FIGURES
from kvsim.report.page import make_page

LOADING = {"src", "href", "srcset", "data", "action", "poster", "background"}


class Reader(HTMLParser):
    """Collects what a browser would load, the scripts, and the text."""

    def __init__(self):
        super().__init__()
        self.loads, self.scripts, self.text, self.tags, self.policy = [], [], [], [], ""
        self.script = False

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.script = tag == "script"
        self.loads += [(tag, name, value) for name, value in attrs if name in LOADING]
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
    rest = page.replace(get_plotlyjs(), "")
    assert not re.search(r"https?://|@import|url\(", rest)


def test_plotly_is_there_once_and_the_rest_is_small(odd_result):
    page = make_page(odd_result)
    assert page.count(get_plotlyjs()) == 1
    assert len(page) - len(get_plotlyjs()) < 1_000_000


def test_every_figure_is_on_the_page(result):
    page = make_page(result)
    for name in FIGURES:
        data = re.search(
            rf'<script type="application/json" id="figure-{name}">(.*?)</script>', page, re.DOTALL
        )
        assert json.loads(data.group(1))["data"]
        assert f'data-figure="figure-{name}"' in page


def test_what_cannot_be_drawn_is_said(odd_result):
    page = make_page(odd_result)
    for name in FIGURES:
        figure = FIGURES.get(name)()
        drawn = f'id="figure-{name}"' in page
        assert drawn or figure.nothing in page


def test_provenance_stands_at_the_foot(result):
    text = "".join(read(make_page(result)).text)
    assert "Made by kvsim 0.1.0" in text
    assert "Requests: clipped 2 of 120 prompts to 900 tokens" in text
    assert to_toml(result.scenario).strip() in text


def test_labels_cannot_break_the_page(hostile):
    page = make_page(hostile)
    reader = read(page)
    assert "b" not in reader.tags
    # One script per figure, plotly, and the few lines that draw.
    assert reader.tags.count("script") == len(list(FIGURES)) + 2
    assert 'max "</script><b>' not in page


def test_the_same_result_makes_the_same_page(result):
    assert make_page(result) == make_page(result)
