"""A figure of the report on its own, for a notebook or a paper."""

from typing import TYPE_CHECKING

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need
from kvsim.report.figures import FIGURES
from kvsim.results.result import Result

if TYPE_CHECKING:
    import plotly.graph_objects as go


def figure(result: Result, name: str) -> "go.Figure":
    """The figure `name` of a result's page as a plotly figure: `shares`, `ledger`, `ttft`, ...

    It has the report's look and a legend. Raises InputError for a name that no figure has, and
    where this result has nothing to draw.
    """
    need("plotly", "pandas", where=f"figure {name}")
    drawing = FIGURES.parse({"kind": name}, "figure")
    found = drawing.draw(result)
    if found is None:
        raise InputError(
            "nothing to draw", where=f"figure {name}", value=drawing.nothing.rstrip(".")
        )
    found.update_layout(showlegend=True, title=drawing.title)
    return found
