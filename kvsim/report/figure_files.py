"""A figure of `kvsim.figure` as SVG, PNG, PDF, HTML or JSON, for a paper or a slide."""

import base64
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_to_bytes

from kvsim.plumbing.errors import InputError
from kvsim.report.browser import VARIABLE, dom, find_browser, printed
from kvsim.report.template import inert, plotly_script, rendered

if TYPE_CHECKING:
    import plotly.graph_objects as go

WIDTH_PX = 900
DOTS_PER_PX = 2  # of a PNG: sharp on paper, too
_WHITE = {"paper_bgcolor": "#ffffff", "plot_bgcolor": "#ffffff"}


def _svg(figure: "go.Figure") -> bytes:
    """The figure as SVG."""
    return _picture(figure, "svg", 1)


def _png(figure: "go.Figure") -> bytes:
    """The figure as PNG, DOTS_PER_PX x WIDTH_PX wide, on white."""
    return _picture(figure, "png", DOTS_PER_PX)


def _pdf(figure: "go.Figure") -> bytes:
    """The figure as a PDF with one page of its size."""
    return printed(_page(figure))


def _html(figure: "go.Figure") -> bytes:
    """The figure as an HTML page that opens offline, with zoom and values on mouse-over."""
    return _page(figure).encode()


def _json(figure: "go.Figure") -> bytes:
    """The figure as JSON that `plotly.io.from_json` reads."""
    text: str = figure.to_json()
    return text.encode()


FIGURE_FORMS: dict[str, Callable[["go.Figure"], bytes]] = {
    "svg": _svg,
    "png": _png,
    "pdf": _pdf,
    "html": _html,
    "json": _json,
}


def _page(figure: "go.Figure", **values: Any) -> str:
    """An HTML page with only this figure. values: further variables of the template."""
    figure.update_layout(_WHITE)
    height = round(figure.layout.height)
    return rendered(
        "one_figure.html",
        title=figure.layout.title.text or "kvsim",
        width=WIDTH_PX,
        height=height,
        library=plotly_script().decode(),
        data=inert(figure.to_json()),
        **{"picture": None, "scale": 1, **values},
    )


def _picture(figure: "go.Figure", form: str, scale: int) -> bytes:
    """The image that plotly renders of the figure in a browser of this machine, decoded from a data
    URL (RFC 2397).
    """
    found = re.search(r'data-picture="([^"]+)"', dom(_page(figure, picture=form, scale=scale)))
    if found is None:
        raise InputError(
            "the browser did not draw the figure", where=VARIABLE, value=str(find_browser())
        )
    head, _, body = unquote(found.group(1)).partition(",")
    return base64.b64decode(body) if head.endswith(";base64") else unquote_to_bytes(body)
