"""Statistics of a radix tree's nodes: tokens of hits, size of nodes, age of evicted nodes."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvsim.plumbing.units import PS_PER_S
from kvsim.report.classes import run_line
from kvsim.report.cumulative import Floats, axis_of, thinned, weighed
from kvsim.report.figure import Figure, compact, heading, plain, style
from kvsim.report.numbers import count, seconds
from kvsim.results.result import Result

_PANEL_PX, _EDGES_PX = 200, 60
_NOTHING_AT = 0.5  # where an axis of powers draws 0
_NAMES = (
    "tokens hit at admission",
    "tokens of a node, evicted or left at the end",
    "time from an evicted node's last use, by tokens",
)


class _Curves(NamedTuple):
    place: int
    label: str
    spans: tuple[Floats, ...]  # one a panel


class Tree(Figure):
    """Three distributions over the hits and nodes of a radix tree."""

    title: ClassVar[str] = "The radix tree"
    note: ClassVar[str] = (
        "How many tokens an admitted request found in the tree, how large the tree's nodes were, "
        "and how long an evicted node had lain unused; the height is the share of the requests, of "
        "the nodes and of the evicted tokens."
    )
    nothing: ClassVar[str] = "No run kept a radix tree, or the runs were not traced."
    lines: ClassVar[bool] = True

    def draw(self, result: Result) -> go.Figure | None:
        """A panel per distribution that any run has, with a curve per run."""
        curves = []
        for place, run in enumerate(result.runs):
            nodes = run.table("nodes")
            if nodes is not None and len(nodes):
                curves.append(_Curves(place, run.label, _spans(nodes)))
        shown = [at for at in range(len(_NAMES)) if any(len(each.spans[at]) for each in curves)]
        if not shown:
            return None
        height = _EDGES_PX + _PANEL_PX * len(shown)
        figure = make_subplots(rows=len(shown), cols=1, vertical_spacing=64 / height)
        style(
            figure,
            height_px=height,
            hovermode="closest",
            annotations=[
                heading(_NAMES[at], axis="y" if row == 1 else f"y{row}")
                for row, at in enumerate(shown, start=1)
            ],
        )
        for row, at in enumerate(shown, start=1):
            _draw(figure, row, [each for each in curves if len(each.spans[at])], at)
        figure.update_yaxes(range=[0, 101], dtick=25, ticksuffix=" %")
        return figure


def _spans(nodes: pd.DataFrame) -> tuple[Floats, ...]:
    """Tokens of each hit, tokens of each node, and ages of evicted tokens in s."""
    tokens = nodes["tokens"].to_numpy(np.float64)
    event = nodes["event"].astype(str).to_numpy()
    gone = event == "evicted"
    ages = nodes["age_ps"].to_numpy(np.float64)[gone] / PS_PER_S
    return tokens[event == "hit"], tokens[event != "hit"], weighed(ages, tokens[gone])


def _draw(figure: go.Figure, row: int, curves: list[_Curves], at: int) -> None:
    everyone = [each.spans[at] for each in curves]
    words: Callable[[float], str] = _tokens
    if at == len(_NAMES) - 1:
        words = seconds
        axis, least = axis_of(min(map(np.min, everyone)), max(map(np.max, everyone)))
    else:
        axis, least = _tokens_axis(max(map(np.max, everyone))), _NOTHING_AT
    for each in curves:
        x, share = thinned(each.spans[at])
        figure.add_scatter(
            name=plain(each.label),
            x=compact(np.maximum(x, least)),
            y=compact(100 * share),
            mode="lines",
            line={**run_line(each.place), "width": 2, "shape": "hv"},
            text=[words(value) for value in x],
            hovertemplate="%{y:.1f} % at most %{text}<extra>%{fullData.name}</extra>",
            row=row,
            col=1,
        )
    figure.update_xaxes(row=row, col=1, **axis)


def _tokens(tokens: float) -> str:
    return f"{count(int(tokens))} tokens"


def _tokens_axis(most: float) -> dict[str, object]:
    """A logarithmic axis of tokens that shows 0 at its left end."""
    powers = range(int(np.ceil(np.log10(max(most, 10.0)))) + 1)
    return {
        "type": "log",
        "range": [np.log10(_NOTHING_AT) - 0.02, np.log10(max(most, 10.0)) + 0.06],
        "tickvals": [_NOTHING_AT, *(10.0**power for power in powers)],
        "ticktext": ["0", *(f"{10**power:,}" for power in powers)],
        "tickangle": 0,
    }
