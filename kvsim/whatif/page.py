"""The page of a what-if: words, figures and tables in the report's look, one file that loads
nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

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
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader(each, ".") for each in ("kvsim.whatif", "kvsim.report")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("whatif.html").render(
        title=title,
        facts=facts,
        words=words,
        sections=[_rendered(section) for section in sections],
        version=VERSION,
        scenario=scenario,
        plotly_js=Markup(get_plotlyjs()),  # noqa: S704 - plotly's own bundle, not input
    )


def _rendered(section: Section) -> dict[str, object]:
    """What the template needs to know of a section; its `form` says which kind it is."""
    form = type(section).__name__.lower()
    fields: dict[str, object] = {"form": form, **section._asdict()}
    if isinstance(section, Drawing):
        drawn = section.figure
        # "<" could end the script element that carries the data; JSON may spell it differently.
        fields["data"] = None if drawn is None else drawn.to_json().replace("<", "\\u003c")
        fields["height_px"] = 0 if drawn is None else drawn.layout.height
    return fields
