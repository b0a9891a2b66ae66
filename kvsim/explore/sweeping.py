"""Dash callbacks of the sweep: its controls, its job, its curve."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from kvsim.explore import curve
from kvsim.explore.controls.rate import RATES
from kvsim.explore.knob_words import words_of
from kvsim.explore.page_context import PageContext
from kvsim.explore.results import CONFIG
from kvsim.explore.running import bar, progress_text
from kvsim.explore.theme import themed
from kvsim.explore.visit import PageVisit
from kvsim.plumbing.keys import assignment
from kvsim.report.names import named

POINTS = 7


def register(app: Dash, context: PageContext) -> None:
    """Register the callbacks with the app."""
    _register_knobs(app)

    @app.callback(
        output={
            "progress": Output("sweep-progress", "children"),
            "bar": Output("sweep-bar", "style"),
            "idle": Output("sweep-tick", "disabled"),
            "cancel": Output("sweep-cancel", "disabled"),
            "curve": Output("curve", "children"),
        },
        inputs={
            "held": Input("visit", "data"),
            "measure": Input("sweep-measure", "value"),
            "theme": Input("theme", "data"),
            "_": (
                Input("sweep-run", "n_clicks"),
                Input("sweep-cancel", "n_clicks"),
                Input("sweep-tick", "n_intervals"),
            ),
        },
        state={"tab": State("tab", "data")},
        prevent_initial_call=True,
    )
    def sweep(
        held: dict[str, Any] | None, measure: str, theme: str | None, _: Any, tab: str
    ) -> dict[str, Any]:
        visit = PageVisit.restored(held) if held else None
        owner = f"{tab} sweep"
        if visit is None or not visit.sweep:
            context.workers.cancel(owner)
            return {"progress": "", "bar": bar(None), "idle": True, "cancel": True, "curve": []}
        key = sha256(f"{visit.state.key} {visit.sweep}".encode()).hexdigest()[:20]
        causes = set(ctx.triggered_prop_ids.values())  # a press changes the visit, too, or does not
        job = context.workers.look(key)
        if "sweep-cancel" in causes:
            context.workers.cancel(owner)
        elif "visit" in causes:
            job = context.workers.ask(owner, key, context.sweep_task(visit.state, visit.sweep))
        elif "sweep-run" in causes and job is not None and job.state == "failed":
            job = context.workers.ask(owner, key, job.task, confirmed=True)
        if job is not None and job.is_missed_by(owner):
            job = context.workers.ask(owner, key, job.task)
        waits = job is not None and not job.is_over
        done = job is not None and job.answer is not None
        return {
            "progress": progress_text(job),
            "bar": bar(job),
            "idle": not waits,
            "cancel": not waits,
            "curve": _drawn(job.answer, visit, measure, theme) if job and done else no_update,
        }


def _drawn(points: Any, visit: PageVisit, measure: str, theme: str | None) -> list[Component]:
    key, _ = assignment(visit.sweep, "sweep")
    titles = knob_titles(dict(numbers(visit.state.table)), visit.state.table)
    figure = curve.draw(points, titles.get(key, key), measure)
    notes: list[Component] = [html.P(each, className="note") for each in curve.faults(points)]
    if figure is None:
        return notes
    shown = themed(figure.to_json(), theme == "dark")
    style = {"height": f"{curve.HEIGHT_PX}px"}
    return [dcc.Graph(figure=shown, config=CONFIG, responsive=True, style=style), *notes]


def _register_knobs(app: Dash) -> None:
    @app.callback(
        Output("sweep-key", "options"),
        Output("sweep-key", "value"),
        Output("sweep-low", "value"),
        Output("sweep-high", "value"),
        Output("sweep-count", "value"),
        Input("visit", "data"),
        Input("sweep-key", "value"),
        State("sweep-count", "value"),
        prevent_initial_call=True,
    )
    def knobs(held: dict[str, Any] | None, chosen: str | None, count: str | None) -> Any:
        if held is None:
            return (no_update,) * 5
        visit = PageVisit.restored(held)
        found = dict(sorted(numbers(visit.state.table), key=_is_no_rate))
        options = [
            {"label": named(title), "value": key}
            for key, title in knob_titles(found, held["table"]).items()
        ]
        if visit.sweep and ctx.triggered_id == "visit":
            swept, values = visit.sweep.split("=", 1)
            return options, swept, *values.removesuffix("log").split(":")
        key = chosen if chosen in found else next(iter(found), None)
        if key is None:
            return options, None, "", "", count
        if key == chosen and ctx.triggered_id == "visit":
            return options, no_update, no_update, no_update, no_update
        low, high = ends(found[key])
        return options, key, str(low), str(high), count or str(POINTS)


def numbers(table: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """The dotted keys of nested tables that have numbers above 0."""
    if isinstance(table, list):
        table = {str(index): each for index, each in enumerate(table)}
    if not isinstance(table, Mapping):
        return
    for key, value in table.items():
        if key == "seed" or isinstance(value, bool):
            continue
        if isinstance(value, int | float):
            if value > 0:
                yield f"{path}{key}", value
        else:
            yield from numbers(value, f"{path}{key}.")


def _is_no_rate(found: tuple[str, float]) -> bool:
    return found[0].rpartition(".")[2] not in RATES


def ends(value: float) -> tuple[float, float]:
    """Default (low, high) of a sweep around a value: a quarter and four times the value; a share
    stays below one.
    """
    if isinstance(value, int):
        return max(1, value // 4), max(2, value * 4)
    if value <= 1:
        return value / 2, 1.0
    return value / 4, value * 4


def knob_titles(keys: Iterable[str], table: Mapping[str, Any]) -> dict[str, str]:
    """Titles of swept keys: words with units, and the label of the allocator that a key belongs to.

    If two titles would be equal, the key is appended.
    """
    titles = {key: _title(key, table) for key in keys}
    often = Counter(titles.values())
    return {key: each if often[each] == 1 else f"{each} ({key})" for key, each in titles.items()}


def _title(key: str, table: Mapping[str, Any]) -> str:
    parts = key.split(".")
    words = words_of(key)
    if parts[0] != "allocator":
        return words
    held = table["allocator"][int(parts[1])]
    label = held.get("label") or held["kind"]
    return f"{label}: {'.'.join(parts[2:]) if words == key else words}"
