"""Scatter plot of predicted against measured times; on the diagonal both are equal."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvsim.report.figure import FAINT_INK, heading, plain, style

MOST_POINTS = 1000  # of one name in a panel; more hide each other
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_PANEL_PX, _EDGES_PX = 300, 116
_MOST_TICKS = 9


class MeasuredPairs(NamedTuple):
    """Measured and predicted values of one label, in the same unit."""

    name: str
    measured: Sequence[float]
    predicted: Sequence[float]


class AgainstPanel(NamedTuple):
    """The points of one measure; the panel's title gives its name and unit."""

    title: str
    groups: Sequence[MeasuredPairs]


def against(panels: Sequence[AgainstPanel]) -> go.Figure | None:
    """Panels from top to bottom, both axes logarithmic; None without a point.

    Of a label with more than MOST_POINTS points, every n-th is drawn.
    """
    panels = [each for each in panels if any(_drawable(pairs) for pairs in each.groups)]
    if not panels:
        return None
    rows = len(panels)
    height = _EDGES_PX + _PANEL_PX * rows
    figure = make_subplots(rows=rows, cols=1, vertical_spacing=84 / height)
    names = dict.fromkeys(pairs.name for each in panels for pairs in each.groups)
    hues = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    told = set()
    for row, panel in enumerate(panels, start=1):
        for pairs in panel.groups:
            points = _drawable(pairs)
            points = points[:: -(-len(points) // MOST_POINTS) or 1]
            if not points:
                continue
            figure.add_scatter(
                x=[x for x, _ in points], y=[y for _, y in points], name=plain(pairs.name),
                legendgroup=pairs.name, showlegend=pairs.name not in told, mode="markers",
                marker={"color": hues[pairs.name], "size": 6, "opacity": 0.6},
                hovertemplate="measured %{x:,.4~g}, simulated %{y:,.4~g}<extra></extra>",
                row=row, col=1,
            )  # fmt: skip
            told.add(pairs.name)
        every = [value for pairs in panel.groups for pair in _drawable(pairs) for value in pair]
        low, high = _ends(every)
        figure.add_scatter(
            x=[low, high], y=[low, high], mode="lines", line={"color": FAINT_INK, "width": 1},
            showlegend=False, hoverinfo="skip", row=row, col=1,
        )  # fmt: skip
    style(
        figure,
        height_px=height,
        showlegend=len(told) > 1,
        legend={"orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "y": 0.995},
        hovermode="closest",
        margin={"l": 68, "r": 12, "t": 64, "b": 52},
        annotations=[
            heading(each.title, axis="y" if row == 1 else f"y{row}")
            for row, each in enumerate(panels, start=1)
        ],
    )
    for row, panel in enumerate(panels, start=1):
        every = [value for pairs in panel.groups for pair in _drawable(pairs) for value in pair]
        axis = _axis(*_ends(every))
        figure.update_xaxes(**axis, title_text="measured", row=row, col=1)
        figure.update_yaxes(**axis, title_text="simulated", row=row, col=1)
    return figure


def _drawable(pairs: MeasuredPairs) -> list[tuple[float, float]]:
    """The pairs with both values above zero, which a logarithmic axis can show."""
    found = zip(pairs.measured, pairs.predicted, strict=True)
    return [(x, y) for x, y in found if x > 0 and y > 0]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Limits of an axis that contains all the values and spans at least a factor of ten."""
    low, high = 0.9 * min(values), 1.1 * max(values)
    more = max(1.0, math.sqrt(10 * low / high))
    return low / more, high * more


def _axis(low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis with ticks at 1, 2, 5, 10, ..., or only at powers of ten over a wide
    range.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    tens = [10.0**power for power in range(first, last + 1)]
    ticks = [size * ten for ten in tens for size in (1, 2, 5) if low <= size * ten <= high]
    ticks = ticks if len(ticks) <= _MOST_TICKS else [ten for ten in tens if low <= ten <= high]
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{tick:,g}" for tick in ticks],
    }
