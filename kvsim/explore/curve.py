"""Draw a sweep as a curve: one line for each run, one point for each value."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvsim.explore.task import CurvePoint
from kvsim.report.classes import run_line
from kvsim.report.figure import plain, style
from kvsim.report.measures import MEASURES
from kvsim.report.numbers import figures

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT_PX = 340
MOST_TICKS = 12


def draw(points: Sequence[CurvePoint], title: str, name: str) -> "go.Figure | None":
    """A figure of the measure `name` over the swept key `title`; None if no value could be run."""
    import plotly.graph_objects as go

    measure = MEASURES[name]
    labels = list(dict.fromkeys(run.label for point in points for run in point.runs))
    if not labels:
        return None
    figure = go.Figure()
    for index, label in enumerate(labels):
        found = [(p.value, run) for p in points for run in p.runs if run.label == label]
        figure.add_scatter(
            name=plain(label),
            x=[value for value, _ in found],
            y=[measure.value(run) for _, run in found],
            text=[measure.text(run) for _, run in found],
            hovertemplate=f"{plain(title)} %{{x}}: %{{text}}<extra>%{{fullData.name}}</extra>",
            mode="lines+markers",
            line={**run_line(index), "width": 2},
        )
    above = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    style(figure, height_px=HEIGHT_PX, hovermode="closest", showlegend=True, legend=above)
    values = [point.value for point in points]
    spread = min(values) > 0 and max(values) / min(values) > 10
    figure.update_xaxes(
        title_text=plain(title),
        type="log" if spread else "linear",
        tickvals=values if len(values) <= MOST_TICKS else None,
        ticktext=[figures(value) for value in values],
        minor_ticks="",
        tickangle=0,
    )
    unit = ", s" if measure.is_time else ""
    figure.update_yaxes(rangemode="tozero", title_text=f"{plain(measure.title)}{unit}")
    figure.update_layout(margin={"l": 72, "r": 12, "t": 40, "b": 52})
    return figure


def faults(points: Sequence[CurvePoint]) -> list[str]:
    """The errors of values that could not be run."""
    return [f"{point.value}: {point.fault}" for point in points if point.fault]
