"""Panels from top to bottom on a shared horizontal axis, each with its title above it."""

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvsim.report.figure import heading, style, time_axis

_EDGES_PX = 46  # above the first panel and below the last


def panels(names: Sequence[str], *, panel_px: int, gap_px: int) -> go.Figure:
    """A styled figure of empty panels, with row 1 on top."""
    height = _EDGES_PX + panel_px * len(names)
    figure = make_subplots(
        rows=len(names), cols=1, shared_xaxes=True, vertical_spacing=gap_px / height
    )
    style(
        figure,
        height_px=height,
        annotations=[
            heading(name, axis="y" if row == 1 else f"y{row}")
            for row, name in enumerate(names, start=1)
        ],
    )
    return figure


def over_time(figure: go.Figure, span_s: float) -> float:
    """Give all panels an axis of time from 0 to `span_s`; returns the seconds per unit of the axis.
    The page can mark a request on this axis.
    """
    unit_s, axis = time_axis(span_s)
    figure.update_layout(hovermode="x unified", meta={"mark": "time", "unit_s": unit_s})
    figure.update_xaxes(**axis)
    return unit_s
