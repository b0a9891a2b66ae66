"""How long requests waited before a step first took them in."""

from typing import TYPE_CHECKING, ClassVar, Literal

from kvsim.report.ecdf import draw_waits
from kvsim.report.figure import Figure
from kvsim.report.latency import queue_s
from kvsim.results.store import ResultLike

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Queue(Figure):
    """How long requests waited before a step first took them in."""

    title: ClassVar[str] = "Waiting in the queue"
    note: ClassVar[str] = (
        "From arrival to the first step that took the request in; the height of the curve is the "
        "share of requests that waited no longer."
    )
    nothing: ClassVar[str] = "No request finished."
    span: ClassVar[Literal["full", "half"]] = "half"
    lines: ClassVar[bool] = True

    def draw(self, result: ResultLike) -> "go.Figure | None":
        """One cumulative curve a run, over finished requests."""
        return draw_waits(result, queue_s)
