"""Dash callbacks that simulate a visit, show progress, and show the results."""

from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, no_update

from kvsim.explore.page_context import PageContext
from kvsim.explore.pins import short_name
from kvsim.explore.results import ResultColumn, drawn
from kvsim.explore.starting_points import TOUR
from kvsim.explore.state import read_query
from kvsim.explore.visit import PageVisit
from kvsim.explore.worker_pool import Job


def register(app: Dash, context: PageContext) -> None:
    """Register the callbacks with the app."""
    _register_run(app, context)
    _register_results(app, context)

    @app.callback(
        Output("download", "data"),
        Input("save", "n_clicks"),
        State("shown", "data"),
        State("visit", "data"),
        prevent_initial_call=True,
    )
    def save(clicks: int, shown: dict[str, Any] | None, held: dict[str, Any]) -> Any:
        job = context.workers.look(shown["key"]) if clicks and shown else None
        if job is None or job.answer is None:
            return no_update
        name = held["base"].removeprefix(TOUR)
        return dcc.send_string(job.answer["scenario"], f"{name}.toml", type="application/toml")


def _register_run(app: Dash, context: PageContext) -> None:
    @app.callback(
        output={
            "awaited": Output("awaited", "data"),
            "shown": Output("shown", "data"),
            "progress": Output("progress", "children"),
            "stale": Output("results", "className"),
            "of": Output("results-of", "children"),
            "bar": Output("bar", "style"),
            "idle": Output("tick", "disabled"),
            "cancel": Output("cancel", "disabled"),
        },
        inputs={
            "held": Input("visit", "data"),
            "_": (
                Input("run", "n_clicks"),
                Input("cancel", "n_clicks"),
                Input("tick", "n_intervals"),
            ),
        },
        state={
            "auto": State("auto", "value"),
            "tab": State("tab", "data"),
            "awaited": State("awaited", "data"),
            "shown": State("shown", "data"),
        },
        prevent_initial_call=True,
    )
    def run(
        held: dict[str, Any] | None,
        _: Any,
        auto: list[str],
        tab: str,
        awaited: str | None,
        shown: dict[str, Any] | None,
    ) -> dict[str, Any]:
        visit = PageVisit.restored(held) if held else None
        causes = set(ctx.triggered_prop_ids.values())  # a tick and a change may come together
        if "cancel" in causes:
            context.workers.cancel(tab)
        elif visit is not None and ("run" in causes or (auto and awaited != visit.state.key)):
            # A change counts until it is asked for: a tick may overtake the answer to it.
            awaited = visit.state.key
            task, pressed = context.run_task(visit.state), "run" in causes
            context.workers.ask(tab, awaited, task, confirmed=pressed)
        job = context.workers.look(awaited)
        if job is not None and job.is_missed_by(tab):
            job = context.workers.ask(tab, job.key, job.task)
        pinned = _pinned(visit, context, tab)
        ready = bool(job and (job.answer or job.preview))
        old_key = (shown or {}).get("key")
        now = awaited if ready else old_key
        base = visit.state.base if visit is not None else None
        new = {
            "key": now,
            "base": base if ready else (shown or {}).get("base"),
            "preview": bool(job and job.preview),
            "pins": [key for key, other in pinned if other.state == "done" and key != now],
        }
        stale = bool(old_key and not ready and awaited != old_key)
        waits = any(not other.is_over for _, other in pinned) or (job and not job.is_over)
        return {
            "awaited": awaited,
            "shown": no_update if new == shown else new,
            "progress": progress_text(job),
            "stale": "stale" if stale else "",
            "of": _of(job, stale=stale, elsewhere=new["base"] != base),
            "bar": bar(job),
            "idle": not waits,
            "cancel": not (job and not job.is_over),
        }


def _pinned(visit: PageVisit | None, context: PageContext, tab: str) -> list[tuple[str, Job]]:
    """The jobs of the pinned runs; a pinned run that was not simulated in this process is
    started.
    """
    found = []
    for pin in visit.pins if visit else ():
        state = read_query(pin, context.starting_points, context.default)
        job = context.workers.look(state.key)
        if job is None:
            job = context.workers.ask(f"{tab} {state.key}", state.key, context.run_task(state))
        found.append((state.key, job))
    return found


def _of(job: Job | None, *, stale: bool, elsewhere: bool) -> str:
    """A note above the results, unless they are from the whole run with the current settings."""
    if stale and elsewhere:
        return "The numbers appear here as soon as they are simulated."
    if stale:
        return "Below: the results of the previous settings."
    if job is not None and job.preview:
        first, of = job.preview["previewed"]
        return f"Below: a preview, the first {first:,} of {of:,} requests."
    return ""


def progress_text(job: Job | None) -> str:
    """The progress of a job, in words."""
    if job is None:
        return ""
    if job.state == "running":
        what, done, total = job.progress
        return f"{what}: {done:,} of {total:,}" if total > 1 else f"{what} …"
    words = {"waiting": "waiting for a free processor …", "cancelled": "cancelled", "done": ""}
    return words.get(job.state, job.fault)


def bar(job: Job | None) -> dict[str, str]:
    """The job's progress bar, as CSS."""
    if job is None or job.state not in ("running", "waiting"):
        return {"width": "0"}
    _, done, total = job.progress
    return {"width": f"{100 * done / max(total, 1):.1f}%"}


def _register_results(app: Dash, context: PageContext) -> None:
    @app.callback(
        Output("results", "children"),
        Output("save", "disabled"),
        Output("report", "href"),
        Output("report", "hidden"),
        Output("drawn", "data"),
        Input("shown", "data"),
        Input("theme", "data"),
        State("visit", "data"),
        prevent_initial_call=True,
    )
    def show(
        shown: dict[str, Any] | None, theme: str | None, held: dict[str, Any] | None
    ) -> tuple[Any, ...]:
        if not shown or not theme or not held:
            return (no_update,) * 5
        visit = PageVisit.restored(held)
        pins = [read_query(pin, context.starting_points, context.default) for pin in visit.pins]
        columns = []
        for index, (pin, state) in enumerate(zip(visit.pins, pins, strict=True)):
            job = context.workers.look(state.key)
            if state.key == shown["key"]:
                continue  # it stands there anyway
            if state.key in shown["pins"] and job is not None and job.answer is not None:
                name = f"{chr(ord('A') + index)}: {short_name(pin)}"
                columns.append(ResultColumn(name, state.key, job.answer))
        job = context.workers.look(shown["key"])
        if job is not None and (held_answer := job.answer or job.preview) is not None:
            columns.append(ResultColumn("now", job.key, held_answer))
        key = job.key if job is not None and job.answer is not None else None
        found = drawn(columns, theme == "dark", preview=key is None)
        return found, key is None, f"/runs/{key}/report.html", key is None, shown["base"]
