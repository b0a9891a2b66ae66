"""The parity plot of a fit: predicted against measured steps, and the error over step tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvsim.step_time.calibrated.samples import KINDS, Sample, kind_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_POINTS = 3000  # of one kind; more hide each other
_COLOURS = dict(zip(KINDS, ("#0072b2", "#d55e00", "#009e73"), strict=True))


def parity_page(title: str, samples: Sequence[Sample], errors: Sequence[float]) -> str:
    """HTML of about 5 MB that opens offline. errors: predicted / measured - 1 of each sample; of
    more than MOST_POINTS samples of a kind, every so many are drawn.
    """
    page: str = draw(title, samples, errors).to_html(include_plotlyjs=True, full_html=True)
    return page


def draw(title: str, samples: Sequence[Sample], errors: Sequence[float]) -> "go.Figure":
    """The two panels as a plotly figure."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.1)
    for kind in KINDS:
        pairs = [
            pair for pair in zip(samples, errors, strict=True) if kind_of(pair[0].shape) == kind
        ]
        shown = pairs[:: -(-len(pairs) // MOST_POINTS) or 1]
        if not shown:
            continue
        measured_ms = [1e3 * sample.seconds for sample, _ in shown]
        tokens = [sample.shape.num_decode + sample.shape.prefill_tokens for sample, _ in shown]
        predicted_ms = [ms * (1 + error) for ms, (_, error) in zip(measured_ms, shown, strict=True)]
        percent = [100 * error for _, error in shown]
        for column, (x, y) in enumerate(((measured_ms, predicted_ms), (tokens, percent)), start=1):
            figure.add_trace(
                go.Scattergl(
                    x=x,
                    y=y,
                    name=kind,
                    legendgroup=kind,
                    showlegend=column == 1,
                    mode="markers",
                    marker={"color": _COLOURS[kind], "size": 4, "opacity": 0.6},
                ),
                row=1,
                col=column,
            )
    ends = [1e3 * pick(sample.seconds for sample in samples) for pick in (min, max)]
    line = {"color": "#59636e", "width": 1}
    figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line=line, showlegend=False), 1, 1)
    figure.update_xaxes(type="log", title_text="measured, ms", row=1, col=1)
    figure.update_yaxes(type="log", title_text="predicted, ms", row=1, col=1)
    figure.update_xaxes(type="log", title_text="tokens in the step", row=1, col=2)
    figure.update_yaxes(title_text="error, %", row=1, col=2)
    figure.update_layout(title=title, template="simple_white", height=560)
    return figure
