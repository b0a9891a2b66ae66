"""The page: one HTML file with everything in it, which opens offline and can be sent to anyone."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from markupsafe import Markup, escape

from kvsim.plumbing.toml import to_toml
from kvsim.report.address_map import address_maps
from kvsim.report.answer import answer
from kvsim.report.cards import cards
from kvsim.report.classes import DARK, LOOKS, run_line
from kvsim.report.figure import DARK_INKS
from kvsim.report.figures import FIGURES
from kvsim.report.measures import MEASURES, best, shown
from kvsim.report.names import called
from kvsim.report.numbers import count, listed, size
from kvsim.report.parts import part_rows
from kvsim.report.remarks import remarks
from kvsim.report.request_list import request_list
from kvsim.report.template import inert, rendered
from kvsim.report.windows import window_rows, window_title
from kvsim.report.words import paragraphs
from kvsim.results.result import Result
from kvsim.results.summary import RunSummary

_TITLE_LABELS = 4
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
    """A figure on the page: its data is plotly's JSON, or None. lines: places of the runs that its
    legend names: those with a line in it.
    """

    name: str
    title: str
    note: str
    nothing: str
    span: str
    lines: tuple[int, ...]
    height_px: int
    data: str | None


def make_page(result: Result) -> str:
    """The whole report as HTML, which loads nothing (0.5 MB of it are plotly.js)."""
    return whole_page(contents(result))


def contents(result: Result) -> dict[str, Any]:
    """The texts and figures of the page, as plain values."""
    runs = [run.summary for run in result.runs]
    labels = [run.label for run in runs]
    listed_requests = request_list(result)
    maps = address_maps(result, listed_requests.places)
    data = {"requests": listed_requests.data, "maps": maps, "dark": DARK | DARK_INKS}
    return {
        "title": f"Where the KV memory went: {_together(labels)}",
        "facts": _facts(result),
        "answer": answer(result),
        "words": paragraphs(result),
        "remarks": remarks(result),
        "cards": cards(result),
        "classes_seen": [
            look.name for look in LOOKS if any(run.memory.time_mean.of(look.name) for run in runs)
        ],
        "command": _next(result),
        "labels": labels,
        "table": _table(runs),
        "parts": part_rows(runs),
        "windows": window_rows(runs),
        "window_title": window_title(runs),
        "maps": [(at, label) for at, label in enumerate(labels) if maps[at] is not None],
        "left_out": count(listed_requests.left_out) if listed_requests.left_out else "",
        "data": inert(json.dumps(data, ensure_ascii=False, allow_nan=False)),
        "figures": _figures(result),
        "version": result.version,
        "scenario": to_toml(result.scenario),
    }


def whole_page(held: dict[str, Any]) -> str:
    """The page of these `contents`."""
    labels = held["labels"]
    return rendered(
        "page.html",
        looks=LOOKS,
        strokes=[run_line(index) for index in range(len(labels))],
        columns=REQUEST_COLUMNS,
        scripts=SCRIPTS,
        marked=lambda text: Markup(_marked(text, labels)),  # noqa: S704 - escaped
        shades=lambda hue: f"--light: {hue}; --dark: {DARK.get(hue, hue)}",
        **held,
    )


def map_page(held: dict[str, Any]) -> str:
    """The address map of these `contents` alone, on a page of its own."""
    return rendered("map_page.html", **held)


def _figures(result: Result) -> dict[str, Drawn]:
    drawn = {}
    for name in FIGURES:
        figure = FIGURES.get(name)()
        plot = figure.draw(result)
        data = None if plot is None else plot.to_json()
        height = 0 if plot is None else plot.layout.height
        lines = _with_lines(plot, len(result.runs)) if plot is not None and figure.lines else ()
        drawn[name] = Drawn(
            name, figure.title, figure.note, figure.nothing, figure.span, lines, height, data
        )
    return drawn


def _with_lines(plot: go.Figure, count: int) -> tuple[int, ...]:
    """Places of the runs of `count` that have a line in the figure, told by its colour."""
    colours = {
        trace.line.color
        for trace in plot.data
        if trace.mode == "lines" and trace.x is not None and len(trace.x)
    }
    return tuple(place for place in range(count) if run_line(place)["color"] in colours)


def _next(result: Result) -> str:
    """The command that says what to change; none for several replicas, which it does not take."""
    several = {"fleet", "disaggregation"} & set(result.scenario)
    return "" if several else "kvsim doctor scenario.toml"


def _table(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Rows of the key numbers: title, meaning, texts (one a run) and which of them read best."""
    return [
        {
            "title": measure.title,
            "meaning": measure.meaning,
            "texts": [measure.text(run) for run in runs],
            "best": best(measure, runs),
        }
        for measure in shown(list(MEASURES), runs)
    ]


def _facts(result: Result) -> list[tuple[str, str]]:
    """What was run, for the line under the title."""
    scenario = result.scenario
    memory = result.runs[0].summary.memory
    requests = result.runs[0].summary.requests
    tokens = memory.capacity_tokens  # states do not grow with them
    room = f", {count(tokens)} tokens" if tokens else ""
    found = [
        ("requests", count(requests.submitted)),
        ("workload", _name(scenario.get("workload"), "name", "path", "kind")),
        ("model", _name(scenario.get("model"), "name", "hf_config")),
        ("device", _name(scenario.get("device"), "name")),
        ("pool", f"{size(memory.capacity_bytes)}{room}"),
        ("scheduler", _name(scenario.get("scheduler"), "kind")),
        ("step time", _name(scenario.get("step_time"), "kind")),
        ("seed", str(scenario.get("seed", 0))),
    ]
    return [(label, value) for label, value in found if value]


def _together(labels: list[str]) -> str:
    return (
        listed([called(label) for label in labels])
        if len(labels) <= _TITLE_LABELS
        else f"{len(labels)} runs compared"
    )


def _marked(text: str, labels: list[str]) -> str:
    """The text as safe HTML: labels stand out, and no line breaks between a number and its unit."""
    glued = re.sub(r"(?<=\d) (?=%|[A-Za-zµ]{1,3}\b)", "\N{NO-BREAK SPACE}", str(escape(text)))
    names = sorted({str(escape(called(label))) for label in labels}, key=len, reverse=True)
    pattern = "|".join(re.escape(name) for name in names)
    return re.sub(rf"(?<![\w-])(?:{pattern})(?![\w-])", r"<strong>\g<0></strong>", glued)


def _name(table: object, *keys: str) -> str:
    """The first of `keys` that a scenario's table holds; a path by its last part."""
    if not isinstance(table, dict):
        return ""
    value = next((table[key] for key in keys if table.get(key)), "")
    return value.rsplit("/", 1)[-1] if isinstance(value, str) else json.dumps(value)
