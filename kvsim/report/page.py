"""The page: one HTML file with everything in it, which opens offline and can be sent to anyone."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from kvsim.plumbing.toml import to_toml
from kvsim.report.address_map import address_maps
from kvsim.report.cards import cards
from kvsim.report.classes import DARK, LOOKS, run_line
from kvsim.report.figures import FIGURES
from kvsim.report.measures import MEASURES, best, shown
from kvsim.report.names import called
from kvsim.report.numbers import NOTHING, count, listed, number, percent, seconds, size
from kvsim.report.request_list import request_list
from kvsim.report.words import paragraphs, remarks
from kvsim.results.result import Result

_TITLE_LABELS = 4
SCRIPTS = ("data", "theme", "figures", "map", "requests")
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


class _Drawn(NamedTuple):
    """A figure on the page: its data is plotly's JSON, safe inside a script element; or None."""

    name: str
    title: str
    note: str
    nothing: str
    span: str
    lines: bool
    height_px: int
    data: str | None


def make_page(result: Result) -> str:
    """The whole report as HTML (about 5 MB, nearly all of it plotly.js). Loads nothing."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.offline import get_plotlyjs

    runs = [run.summary for run in result.runs]
    labels = [run["label"] for run in runs]
    listed_requests = request_list(result)
    maps = address_maps(result, listed_requests.places)
    environment = Environment(
        loader=PackageLoader("kvsim.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["marked"] = lambda text: Markup(_marked(text, labels))  # noqa: S704 - escaped
    environment.filters["shades"] = lambda hue: f"--light: {hue}; --dark: {DARK.get(hue, hue)}"
    return environment.get_template("page.html").render(
        title=f"Where the KV memory went: {_together(labels)}",
        facts=_facts(result),
        words=paragraphs(result),
        remarks=remarks(result),
        cards=cards(result),
        looks=LOOKS,
        labels=labels,
        strokes=[run_line(index) for index in range(len(runs))],
        table=_table(runs),
        windows=_windows(runs),
        window_title=_window_title(runs),
        maps=[(at, label) for at, label in enumerate(labels) if maps[at] is not None],
        columns=REQUEST_COLUMNS,
        left_out=count(listed_requests.left_out) if listed_requests.left_out else "",
        data=_embedded({"requests": listed_requests.data, "maps": maps, "dark": DARK}),
        scripts=SCRIPTS,
        figures=_figures(result),
        version=result.summary()["kvsim"],
        scenario=to_toml(result.scenario),
        plotly_js=Markup(get_plotlyjs()),  # noqa: S704 - plotly's own bundle, not input
    )


def _figures(result: Result) -> dict[str, _Drawn]:
    drawn = {}
    for name in FIGURES:
        figure = FIGURES.get(name)()
        plot = figure.draw(result)
        data = None if plot is None else _inert(plot.to_json())
        height = 0 if plot is None else plot.layout.height
        drawn[name] = _Drawn(
            name, figure.title, figure.note, figure.nothing, figure.span, figure.lines, height, data
        )
    return drawn


def _table(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
    memory = result.runs[0].summary["memory"]
    requests = result.runs[0].summary["requests"]
    found = [
        ("requests", count(requests["submitted"])),
        ("workload", _name(scenario.get("workload"), "name", "path", "kind")),
        ("model", _name(scenario.get("model"), "name", "hf_config")),
        ("device", _name(scenario.get("device"), "name")),
        ("pool", f"{size(memory['capacity_bytes'])}, {count(memory['capacity_tokens'])} tokens"),
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


def _windows(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the measurement windows, where any run has one."""
    windows = [run.get("window") or {"found": "none"} for run in runs]
    if all(window["found"] == "none" for window in windows):
        return []
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("From", lambda window: seconds(window["start_s"])),
        ("To", lambda window: seconds(window["end_s"])),
        ("Requests that came", lambda window: count(window["requests"])),
        ("Output tokens per second", lambda window: number(window["output_tokens_per_s"])),
        ("Sequences running, mean", lambda window: number(window["running_mean"])),
        ("Requests not yet started, mean", lambda window: number(window["waiting_mean"])),
        ("Time to first token, median", lambda window: seconds(window["ttft_s"]["p50"])),
        ("Time to first token, p99", lambda window: seconds(window["ttft_s"]["p99"])),
        ("Pool at work, mean", lambda window: percent(window["memory"]["time_mean"]["used"])),
    ]
    texts = [
        {
            "title": title,
            "texts": [NOTHING if window["found"] == "none" else text(window) for window in windows],
        }
        for title, text in rows
    ]
    if any(window["found"] == "none" for window in windows):
        reasons = [
            window.get("reason", "") if window["found"] == "none" else "" for window in windows
        ]
        texts.append({"title": "Why there is none", "texts": reasons})
    return texts


def _window_title(runs: list[dict[str, Any]]) -> str:
    given = any((run.get("window") or {}).get("found") == "given" for run in runs)
    return "In the window that was given" if given else "While it was steady"


def _embedded(data: dict[str, Any]) -> str:
    return _inert(json.dumps(data, ensure_ascii=False, allow_nan=False))


def _inert(text: str) -> str:
    """JSON for a script element: "<" could end it, and may be spelled differently."""
    return text.replace("<", "\\u003c")


def _name(table: object, *keys: str) -> str:
    """The first of `keys` that a scenario's table holds; a path by its last part."""
    if not isinstance(table, dict):
        return ""
    value = next((table[key] for key in keys if table.get(key)), "")
    return value.rsplit("/", 1)[-1] if isinstance(value, str) else json.dumps(value)
