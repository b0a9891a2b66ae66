"""The figure of `kvsim cache`: hit rate over the size of the cache."""

from typing import TYPE_CHECKING

from kvsim.report.classes import run_line
from kvsim.report.figure import FAINT_INK, style
from kvsim.whatif.cache_curve.question import CacheAnswer

if TYPE_CHECKING:
    import plotly.graph_objects as go


def hit_figure(answer: CacheAnswer) -> "go.Figure | None":
    """Percent of the prompt tokens hit over tokens of the cache, one line for each policy; None if
    nothing is ever hit.
    """
    import plotly.graph_objects as go

    if not answer.unlimited:
        return None
    sizes = sorted(answer.sizes)
    lines = {"LRU": [(each.tokens, each.lru) for each in sizes]}
    if any(each.belady is not None for each in sizes):
        found = [(each.tokens, each.belady or 0.0) for each in sizes]
        lines["Belady (bound of every policy)"] = found
    figure = go.Figure()
    for index, (name, points) in enumerate(lines.items()):
        end = max(points[-1][0], answer.unlimited_tokens) if points else answer.unlimited_tokens
        points = sorted({*points, (end, answer.unlimited)})
        figure.add_scatter(
            x=[tokens for tokens, _ in points],
            y=[100 * share for _, share in points],
            name=name,
            mode="lines+markers",
            line={**run_line(index), "width": 2},
            hovertemplate="%{x:,} tokens find %{y:.1f} %",
        )
    style(figure, height_px=380, hovermode="closest")
    figure.add_vline(x=answer.pool_tokens, line={"color": FAINT_INK, "width": 1, "dash": "dot"})
    above = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    several = len(lines) > 1
    figure.update_layout(showlegend=several, legend=above, margin={"t": 44, "b": 52, "l": 64})
    figure.update_xaxes(title_text="tokens of the cache", type="log")
    figure.update_yaxes(title_text="found", ticksuffix=" %", rangemode="tozero")
    return figure
