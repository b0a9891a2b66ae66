"""The distribution of the time per output token."""

from typing import TYPE_CHECKING, ClassVar, Literal

from kvsim.report.ecdf import draw_waits
from kvsim.report.figure import Figure
from kvsim.report.latency import tpot_s
from kvsim.results.store import ResultLike

if TYPE_CHECKING:
    import plotly.graph_objects as go


class TimePerOutputToken(Figure):
    """The distribution of the time per output token."""

    title: ClassVar[str] = "Time per output token"
    note: ClassVar[str] = (
        "The mean gap between the tokens of each request after its first: how fast the text flows."
    )
    nothing: ClassVar[str] = "No request with more than one output token finished."
    span: ClassVar[Literal["full", "half"]] = "half"
    lines: ClassVar[bool] = True

    def draw(self, result: ResultLike) -> "go.Figure | None":
        """One cumulative curve a run, over finished requests."""
        return draw_waits(result, tpot_s)
