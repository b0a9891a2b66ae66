"""The report page of a comparison: both logs in one chart, and the errors in tables."""

import json
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvsim.report.classes import DARK
from kvsim.report.figure import DARK_INKS, GRID, INK, heading, style
from kvsim.report.numbers import count, figures, percent, plural
from kvsim.report.template import rendered
from kvsim.validate.run.comparison import RunComparison
from kvsim.validate.run.curves import SATURATED_USAGE
from kvsim.validate.run.errors import relative
from kvsim.validate.run.fitting.fit import RunFit
from kvsim.validate.run.intervals import DRAWN_AGAIN
from kvsim.validate.run.tables import (
    TextTable,
    between,
    curve_table,
    fit_table,
    in_words,
    signed,
    step_tables,
)
from kvsim.version import VERSION

HEIGHT_PX = 720
_LINES = (("#0072b2", "dot"), ("#d55e00", "solid"))  # nothing fitted, and a fit
_PANELS = (
    ("running", "Sequences running", 1.0),
    ("waiting", "Requests waiting", 1.0),
    ("kv_cache_usage", "KV memory taken, %", 100.0),
)
_NAMES = {"ttft_s": "time to first token", "tpot_s": "time per output token", "e2e_s": "end to end"}


def make_page(comparisons: Sequence[RunComparison]) -> str:
    """HTML page for one run, compared once (nothing fitted) or twice (also with a fit). It loads no
    other files.
    """
    run, figure = comparisons[0].run, draw(comparisons)
    return rendered(
        "run.html",
        "kvsim.validate.run",
        title=f"{run.meta.model} on {run.meta.gpu}: a real run and the simulated one",
        facts=_facts(comparisons[0]),
        verdict=[_words(comparison) for comparison in comparisons],
        words=[
            *_assumed(run.assumptions),
            *(warning for one in comparisons if one.fit for warning in _warned(one.fit)),
        ],
        full=percent(SATURATED_USAGE),
        height_px=HEIGHT_PX,
        figure=figure and figure.to_json(),
        tables=[table for comparison in comparisons for table in _tables(comparison)],
        dark=json.dumps(DARK | DARK_INKS),
        version=VERSION,
        source=_sentence(run.meta.source),
        step_time_source=_sentence(comparisons[0].times.source),
    )


def draw(comparisons: Sequence[RunComparison]) -> go.Figure | None:
    """A chart with one panel for each recorded column of the log, with the simulated values in it;
    None if no log was recorded.
    """
    logs = [comparison.curves for comparison in comparisons if comparison.curves is not None]
    if not logs:
        return None
    curves = logs[0]
    panels = [panel for panel in _PANELS if panel[0] in curves.recorded]
    figure = make_subplots(rows=len(panels), cols=1, shared_xaxes=True, vertical_spacing=0.07)
    for row, (name, _, scale) in enumerate(panels, start=1):
        lines = [("recorded", curves.recorded[name], INK, "solid")]
        for comparison, log, (colour, dash) in zip(
            comparisons, logs, _colours(comparisons), strict=True
        ):
            lines.append((_label(comparison), log.simulated[name], colour, dash))
        for label, values, colour, dash in lines:
            figure.add_trace(
                go.Scatter(
                    x=curves.t,
                    y=values * scale,
                    name=label,
                    legendgroup=label,
                    showlegend=row == 1,
                    mode="lines",
                    line={"color": colour, "width": 1.6, "dash": dash},
                ),
                row=row,
                col=1,
            )
    saturated = curves.phases().get("saturated")
    if saturated is not None and saturated.any():
        shaded = curves.t[saturated]
        figure.add_vrect(
            x0=shaded[0],
            x1=shaded[-1],
            fillcolor=GRID,
            opacity=0.4,
            line_width=0,
            layer="below",
        )
    style(figure, height_px=HEIGHT_PX, hovermode="x unified")
    for row, (_, title, _) in enumerate(panels, start=1):
        figure.add_annotation(heading(title, axis="y" if row == 1 else f"y{row}"))
    above = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.04, "yanchor": "bottom"}
    figure.update_layout(showlegend=True, legend=above, margin={"t": 64, "b": 56})
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(
        title_text="seconds since the first arrival", title_standoff=14, row=len(panels), col=1
    )
    return figure


def _colours(comparisons: Sequence[RunComparison]) -> tuple[tuple[str, str], ...]:
    return _LINES[-len(comparisons) :]


def _label(comparison: RunComparison) -> str:
    if comparison.fit is None:
        return "simulated, nothing fitted on the run"
    return f"simulated, {in_words(comparison.fit)} fitted on the first part"


def _facts(comparison: RunComparison) -> list[tuple[str, str]]:
    run = comparison.run
    return [
        ("requests", count(len(run.rows))),
        *run.meta.facts(),
        ("step time", comparison.times.label),
    ]


def _assumed(assumptions: Sequence[str]) -> list[str]:
    if not assumptions:
        return []
    return [f"Not recorded, so assumed: {'; '.join(assumptions)}."]


def _warned(fit: RunFit) -> list[str]:
    return [f"{warning[0].upper()}{warning[1:]}." for warning in fit.warnings]


def _words(comparison: RunComparison) -> str:
    errors = relative(comparison.simulated, comparison.recorded)
    means = [
        f"{_NAMES[name]} {_glued(spread['mean'])}"
        for name, spread in errors.items()
        if isinstance(spread, dict)
    ]
    makespan = errors["makespan_s"]
    assert isinstance(makespan, float)
    if comparison.fit is not None:
        how = (
            f"With {in_words(comparison.fit)}, fitted on the "
            f"{plural(comparison.fit.requests, 'request')} answered first, the simulated means of "
            f"the other {count(len(comparison.reported))} differ from the recorded ones"
        )
    else:
        how = (
            f"With nothing fitted on the run, the simulated means of its "
            f"{plural(len(comparison.run.rows), 'request')} differ from the recorded ones"
        )
    return f"{how}: {', '.join(means)}. The makespan differs by {_glued(makespan)}."


def _glued(error: float) -> str:
    """An error with a non-breaking space before its unit."""
    return signed(error).replace(" ", "\N{NO-BREAK SPACE}")


def _tables(comparison: RunComparison) -> list[TextTable]:
    which = _label(comparison).removeprefix("simulated, ")
    tables = [_latency_table(comparison, which)]
    if comparison.fit is not None:
        tables.append(fit_table(comparison.fit))
    if comparison.curves is not None:
        tables.append(curve_table(comparison.curves, f"The log: {which}"))
    if comparison.steps is not None:
        tables += step_tables(comparison.steps, which)
    return tables


def _latency_table(comparison: RunComparison, which: str) -> TextTable:
    errors = relative(comparison.simulated, comparison.recorded)
    rows: list[tuple[str, ...]] = []
    for name, spread in comparison.recorded.items():
        for key, value in spread.items():
            error: Any = errors[name]
            error = error[key] if isinstance(error, dict) else error
            simulated = comparison.simulated[name][key]
            label = f"{_NAMES[name]}, {key}" if name in _NAMES else "makespan"
            span = comparison.intervals.get(name) if key == "mean" else None
            rows.append(
                (label, _time(name, value), _time(name, simulated), signed(error), between(span))
            )
    unseen = "." if comparison.fit is None else ", none of which the fit has seen."
    note = f"Of {plural(len(comparison.reported), 'request')}{unseen} 95 %: {DRAWN_AGAIN}."
    heads = ("", "recorded", "simulated", "error", "95 %")
    return TextTable(f"Latencies: {which}", note, heads, tuple(rows))


def _time(name: str, value_s: float) -> str:
    """A time in one unit for each row: milliseconds for gaps between tokens, seconds for
    all else.
    """
    return f"{figures(1e3 * value_s)} ms" if name == "tpot_s" else f"{figures(value_s)} s"


def _sentence(text: str) -> str:
    return f"{text.strip().rstrip('.') or 'not named'}."
