"""The page: one HTML file with everything in it, which opens offline and can be sent to anyone."""

import json
import re
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from kvsim.plumbing.toml import to_toml
from kvsim.report.classes import LOOKS, run_line
from kvsim.report.figures import FIGURES
from kvsim.report.measures import MEASURES, best, shown
from kvsim.report.numbers import count, listed, size
from kvsim.report.words import paragraphs
from kvsim.results.result import Result

_TITLE_LABELS = 4


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
    environment = Environment(
        loader=PackageLoader("kvsim.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["marked"] = lambda text: Markup(_marked(text, labels))  # noqa: S704 - escaped
    return environment.get_template("page.html").render(
        title=f"Where the KV memory went: {_together(labels)}",
        facts=_facts(result),
        words=paragraphs(result),
        looks=LOOKS,
        labels=labels,
        strokes=[run_line(index) for index in range(len(runs))],
        table=_table(runs),
        figures=_figures(result),
        version=result.summary()["kvsim"],
        notes=_notes(result.scenario),
        scenario=to_toml(result.scenario),
        plotly_js=Markup(get_plotlyjs()),  # noqa: S704 - plotly's own bundle, not input
    )


def _figures(result: Result) -> dict[str, _Drawn]:
    drawn = {}
    for name in FIGURES:
        figure = FIGURES.get(name)()
        plot = figure.draw(result)
        # "<" could end the script element that carries the data; JSON may spell it differently.
        data = None if plot is None else plot.to_json().replace("<", "\\u003c")
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
    return listed(labels) if len(labels) <= _TITLE_LABELS else f"{len(labels)} runs compared"


def _marked(text: str, labels: list[str]) -> str:
    """The text as safe HTML: labels stand out, and no line breaks between a number and its unit."""
    glued = re.sub(r"(?<=\d) (?=%|[A-Za-zµ]{1,3}\b)", "\N{NO-BREAK SPACE}", str(escape(text)))
    longest_first = sorted((str(escape(label)) for label in labels), key=len, reverse=True)
    pattern = "|".join(re.escape(label) for label in longest_first)
    return re.sub(rf"(?<![\w-])(?:{pattern})(?![\w-])", r"<strong>\g<0></strong>", glued)


def _notes(scenario: dict[str, Any]) -> list[str]:
    """What was done to the requests on the way, as their stream tells it."""
    return [f"Requests: {note}" for note in scenario.get("provenance", {}).get("notes", [])]


def _name(table: object, *keys: str) -> str:
    """The first of `keys` that a scenario's table holds; a path by its last part."""
    if not isinstance(table, dict):
        return ""
    value = next((table[key] for key in keys if table.get(key)), "")
    return value.rsplit("/", 1)[-1] if isinstance(value, str) else json.dumps(value)
