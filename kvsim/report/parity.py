"""The page of a step-time fit: predicted against measured steps, and errors by tokens a step."""

import json
from collections.abc import Sequence
from statistics import fmean

import plotly.graph_objects as go

from kvsim.report.against import COLOURS, MOST_POINTS, AgainstPanel, MeasuredPairs, against
from kvsim.report.classes import DARK
from kvsim.report.figure import DARK_INKS, style
from kvsim.report.numbers import figures, plural
from kvsim.report.template import rendered
from kvsim.step_time.calibrated.samples import KINDS, Sample, kind_of
from kvsim.version import VERSION

_Pair = tuple[Sample, float]


def parity_page(title: str, samples: Sequence[Sample], errors: Sequence[float]) -> str:
    """An HTML page that loads nothing from the network.

    errors: predicted / measured - 1 of each sample. Of a kind with more than MOST_POINTS samples,
    every n-th is drawn.
    """
    pairs = list(zip(samples, errors, strict=True))
    kinds: dict[str, list[_Pair]] = {
        kind: [pair for pair in pairs if kind_of(pair[0].shape) == kind] for kind in KINDS
    }
    drawn = [
        ("steps", "Predicted against measured steps", "On the line both are equal.", _steps(kinds)),
        ("errors", "Error over the tokens of a step", "Predicted / measured - 1.", _errors(kinds)),
    ]
    return rendered(
        "parity.html",
        title=title,
        words=_verdict(kinds),
        figures=[
            (name, head, note, plot.to_json(), plot.layout.height)
            for name, head, note, plot in drawn
            if plot is not None
        ],
        dark=json.dumps(DARK | DARK_INKS),
        version=VERSION,
    )


def _verdict(kinds: dict[str, list[_Pair]]) -> str:
    """A sentence on the mean absolute error of each kind of step."""
    found = [
        f"{figures(100 * fmean(abs(error) for _, error in pairs), 2)} % over "
        f"{plural(len(pairs), f'{kind} step')}"
        for kind, pairs in kinds.items()
        if pairs
    ]
    return f"Mean error of steps that the fit did not see: {', '.join(found)}."


def _steps(kinds: dict[str, list[_Pair]]) -> go.Figure | None:
    groups = []
    for kind, pairs in kinds.items():
        measured = [1e3 * sample.seconds for sample, _ in pairs]
        predicted = [ms * (1 + error) for ms, (_, error) in zip(measured, pairs, strict=True)]
        groups.append(MeasuredPairs(kind, measured, predicted))
    return against([AgainstPanel("Step time, ms", groups)])


def _errors(kinds: dict[str, list[_Pair]]) -> go.Figure:
    figure = go.Figure()
    for hue, (kind, pairs) in zip(COLOURS, kinds.items(), strict=False):
        shown = pairs[:: -(-len(pairs) // MOST_POINTS) or 1]
        if shown:
            figure.add_scatter(
                x=[each.shape.num_decode + each.shape.prefill_tokens for each, _ in shown],
                y=[100 * error for _, error in shown], name=kind, mode="markers",
                marker={"color": hue, "size": 6, "opacity": 0.6},
                hovertemplate="%{x:,} tokens: %{y:.1f} %<extra></extra>",
            )  # fmt: skip
    above = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    style(figure, height_px=360, showlegend=True, legend=above, hovermode="closest",
          margin={"l": 68, "r": 12, "t": 40, "b": 52})  # fmt: skip
    figure.update_xaxes(type="log", dtick=1, tickformat=",~g", title_text="tokens in the step")
    figure.update_yaxes(ticksuffix=" %", zeroline=True)
    return figure
