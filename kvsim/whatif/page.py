"""The page of a what-if: words, figures and tables in the report's look, one file that loads
nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvsim.report.template import inert, plotly_js, rendered
from kvsim.version import VERSION

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Cells(NamedTuple):
    """A table of the page: texts; the first column names the row."""

    title: str
    note: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Drawing(NamedTuple):
    """A figure of the page; None: the note says why there is none."""

    title: str
    note: str
    figure: "go.Figure | None"


class Code(NamedTuple):
    """Text to be copied as it stands: commands, tables of settings."""

    title: str
    note: str
    text: str


Section = Cells | Drawing | Code


def make_page(
    title: str,
    facts: Sequence[tuple[str, str]],
    words: Sequence[str],
    sections: Sequence[Section],
    scenario: str,
) -> str:
    """The page as HTML (about 5 MB, nearly all of it plotly.js). scenario: as TOML."""
    return rendered(
        "whatif.html",
        "kvsim.whatif",
        title=title,
        facts=facts,
        words=words,
        sections=[_section(section) for section in sections],
        version=VERSION,
        scenario=scenario,
        plotly_js=plotly_js(),
    )


def _section(section: Section) -> dict[str, object]:
    """What the template needs to know of a section; its `form` says which kind it is."""
    form = type(section).__name__.lower()
    fields: dict[str, object] = {"form": form, **section._asdict()}
    if isinstance(section, Drawing):
        drawn = section.figure
        fields["data"] = None if drawn is None else inert(drawn.to_json())
        fields["height_px"] = 0 if drawn is None else drawn.layout.height
    return fields
