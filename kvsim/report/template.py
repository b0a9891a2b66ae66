"""Render pages from templates with one style and one head; texts from users are escaped."""

import re
import zlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from kvsim.report.packing import in_letters, packed_text

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

HERE = "kvsim.report"
PLOTLY = "plotly-basic.min.js.zlib"
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]{1,40}(?![\w-])")


def environment(package: str = HERE) -> "jinja2.Environment":
    """The jinja2 environment of a package's templates, which extend and include the report's."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=ChoiceLoader([PackageLoader(each, ".") for each in (package, HERE)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["carried"] = Carried()
    made.filters["whole_flags"] = whole_flags
    return made


def rendered(template: str, package: str = HERE, **values: Any) -> str:
    """The page that a package's template renders from these values."""
    return environment(package).get_template(template).render(**values)


def whole_flags(text: object) -> "Markup":
    """The text as safe HTML in which no line breaks inside a flag such as `--max-num-seqs`."""
    from markupsafe import Markup, escape

    whole = _FLAG.sub(r'<span class="whole">\g<0></span>', str(escape(text)))
    return Markup(whole)  # noqa: S704 - escaped


class Carried:
    """Data and scripts embedded in one page.

    Figures are compressed. So is plotly.js, which a page without figures does not contain.
    """

    def __init__(self) -> None:
        self.num_figures = 0

    def figure(self, name: str, plotly_json: str) -> "Markup":
        """The script element that contains the data of a figure."""
        self.num_figures += 1
        return _element(f'type="text/plain" id="figure-{name}"', packed_text(plotly_json))

    def scripts(self, *names: str) -> "Markup":
        """plotly.js if the page has figures, then these files of scripts/, as the last elements of
        the page.
        """
        from markupsafe import Markup

        here = files(HERE)
        made = []
        if self.num_figures:
            made.append(_element('type="text/plain" id="plotly"', in_letters(_library())))
        texts = ((here / "scripts" / f"{name}.js").read_text("utf-8") for name in names)
        made += [_element("", f"\n{text}") for text in texts]
        return Markup("\n").join(made)


def plotly_script() -> bytes:
    """The source of plotly.js (1.1 MB), reduced to what the figures need."""
    return zlib.decompress(_library())


def _library() -> bytes:
    return (files(HERE) / "plotly" / PLOTLY).read_bytes()


def _element(attributes: str, text: str) -> "Markup":
    from markupsafe import Markup

    opened = f"<script {attributes}>" if attributes else "<script>"
    return Markup(f"{opened}{text}</script>")  # noqa: S704 - letters, or files of kvsim


def inert(json_text: str) -> str:
    """JSON safe inside a script element: "<", which could end the element, is escaped."""
    return json_text.replace("<", "\\u003c")


def style_sheet() -> str:
    """The CSS that all pages share."""
    return (files(HERE) / "page.css").read_text(encoding="utf-8")
