"""Render the HTML page from plain contents, without the libraries that computed them.

So the explorer's server, which gets contents from its workers, starts without pandas.
"""

import re
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from kvsim.report.classes import DARK, LOOKS, run_line
from kvsim.report.names import called
from kvsim.report.template import rendered

_WHOLE = 20  # characters of a label that no line breaks
SCRIPTS = ("unpack", "data", "theme", "figures", "map", "requests")
# Of the table of requests: what the scripts call a column, and its head.
REQUEST_COLUMNS = (
    ("id", "request"),
    ("arrival", "arrived"),
    ("queue_s", "waited"),
    ("ttft_s", "first token"),
    ("tpot_s", "per token"),
    ("e2e_s", "end to end"),
    ("prompt_tokens", "prompt"),
    ("output_tokens", "output"),
    ("cached_tokens", "from cache"),
    ("preemptions", "preempted"),
)


class Drawn(NamedTuple):
    """A figure on the page: its data is plotly's JSON, or None if nothing was drawn.

    lines: indices of the runs that its legend lists, because they have a line. classes: ledger
    classes that have an area.
    """

    name: str
    title: str
    note: str
    nothing: str
    span: str
    lines: tuple[int, ...]
    classes: tuple[str, ...]
    height_px: int
    data: str | None


def whole_page(held: dict[str, Any]) -> str:
    """Render the page from `page.contents`."""
    labels = held["labels"]
    return rendered(
        "page.html",
        looks=LOOKS,
        strokes=[run_line(index) for index in range(len(labels))],
        columns=REQUEST_COLUMNS,
        scripts=SCRIPTS,
        marked=lambda text: Markup(with_labels(text, labels)),  # noqa: S704 - escaped
        shades=lambda hue: f"--light: {hue}; --dark: {DARK.get(hue, hue)}",
        **held,
    )


def map_page(held: dict[str, Any]) -> str:
    """Render a page with only the address map, from `page.contents`."""
    return rendered("map_page.html", **held)


def with_labels(text: str, labels: list[str]) -> str:
    """The text as safe HTML in which run labels stand out and no line breaks between a number and
    its unit.
    """
    names = sorted({str(escape(called(label))) for label in labels}, key=len, reverse=True)
    name = "|".join(re.escape(each) for each in names)
    # A space within a label is not one between a number and its unit: labels come first.
    pattern = rf"(?<![\w-])(?P<name>{name})(?![\w-])|(?<=\d) (?=%|[A-Za-zµ]{{1,3}}\b)"
    return re.sub(pattern, _strong_or_glued, str(escape(text)))


def _strong_or_glued(found: re.Match[str]) -> str:
    if found["name"] is None:
        return "\N{NO-BREAK SPACE}"
    whole = ' class="whole"' if len(found[0]) <= _WHOLE else ""
    return f"<strong{whole}>{found[0]}</strong>"
