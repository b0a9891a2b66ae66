"""The distribution of the time to first token."""

from typing import TYPE_CHECKING, ClassVar, Literal

from kvsim.report.ecdf import draw_waits
from kvsim.report.figure import Figure
from kvsim.report.latency import ttft_s
from kvsim.results.store import ResultLike

if TYPE_CHECKING:
    import plotly.graph_objects as go


class TimeToFirstToken(Figure):
    """The distribution of the time to first token."""

    title: ClassVar[str] = "Time to first token"
    note: ClassVar[str] = "Arrival to the first output token: the wait a user notices first."
    nothing: ClassVar[str] = "No request finished."
    span: ClassVar[Literal["full", "half"]] = "half"
    lines: ClassVar[bool] = True

    def draw(self, result: ResultLike) -> "go.Figure | None":
        """One cumulative curve a run, over finished requests."""
        return draw_waits(result, ttft_s)
