"""The figure of goodput: requests within all limits a second, over the request rate."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvsim.report.classes import run_line
from kvsim.report.figure import plain, style
from kvsim.whatif.capacity.answers import CapacityAnswer, GoodputPoint
from kvsim.whatif.error_bars import error_bars

if TYPE_CHECKING:
    import plotly.graph_objects as go

GoodputCurve = tuple[CapacityAnswer, Sequence[GoodputPoint]]


def goodput_figure(curves: Sequence[GoodputCurve], unit: str) -> "go.Figure":
    """One line for each allocator: rate times share within the limits, with its interval."""
    import plotly.graph_objects as go

    figure = go.Figure()
    most = max(share.rate_per_s for _, shares in curves for share in shares)
    figure.add_scatter(
        x=[0, most], y=[0, most], mode="lines", showlegend=False, hoverinfo="skip",
        line={"color": "#b0b7bf", "width": 1},
    )  # fmt: skip
    for index, (answer, shares) in enumerate(curves):
        served = [share.rate_per_s * share.within.mean for share in shares]
        widths = [share.rate_per_s * (share.within.half_width or 0.0) for share in shares]
        rates = [share.rate_per_s for share in shares]
        figure.add_scatter(
            x=rates,
            y=served,
            error_y=error_bars(served, widths, most=rates),
            name=plain(answer.subject.label), mode="lines+markers",
            line={**run_line(index), "width": 2},
            marker={"symbol": ["x" if share.saturated else "circle" for share in shares]},
            hovertemplate="%{x:.3g} come, %{y:.3g} are well served",
        )  # fmt: skip
    style(figure, height_px=420, hovermode="closest")
    above = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    figure.update_layout(showlegend=True, legend=above, margin={"t": 48, "b": 52, "l": 64})
    figure.update_xaxes(title_text=f"arriving {unit}", rangemode="tozero")
    figure.update_yaxes(title_text=f"goodput, {unit}", rangemode="tozero")
    return figure
