"""The distribution of the time from arrival to the last token."""

from typing import TYPE_CHECKING, ClassVar, Literal

from kvsim.report.ecdf import draw_waits
from kvsim.report.figure import Figure
from kvsim.report.latency import e2e_s
from kvsim.results.store import ResultLike

if TYPE_CHECKING:
    import plotly.graph_objects as go


class EndToEnd(Figure):
    """The distribution of the time from arrival to the last token."""

    title: ClassVar[str] = "End to end"
    note: ClassVar[str] = "Arrival to the last output token."
    nothing: ClassVar[str] = "No request finished."
    span: ClassVar[Literal["full", "half"]] = "half"
    lines: ClassVar[bool] = True

    def draw(self, result: ResultLike) -> "go.Figure | None":
        """One cumulative curve a run, over finished requests."""
        return draw_waits(result, e2e_s)
