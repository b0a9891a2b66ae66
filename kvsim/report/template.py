"""Pages out of their templates: one look, one head, nothing of a user's text is markup."""

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
    """The templates of a package, with the report's as fallback, which they extend and include."""
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
    """The page that a package's template makes of these values."""
    return environment(package).get_template(template).render(**values)


def whole_flags(text: object) -> "Markup":
    """A text as safe HTML, in which no line breaks inside a flag such as `--max-num-seqs`."""
    from markupsafe import Markup, escape

    whole = _FLAG.sub(r'<span class="whole">\g<0></span>', str(escape(text)))
    return Markup(whole)  # noqa: S704 - escaped


class Carried:
    """Data that one page carries for its scripts.

    Figures are compressed, and so is the library that draws them, which a page without a figure has
    not.
    """

    def __init__(self) -> None:
        self.num_figures = 0

    def figure(self, name: str, plotly_json: str) -> "Markup":
        """The script element that holds the data of a figure."""
        self.num_figures += 1
        return _element(f'type="text/plain" id="figure-{name}"', packed_text(plotly_json))

    def scripts(self, *names: str) -> "Markup":
        """The library, where a figure asks for it, and then these files of scripts/. The last
        things on a page.
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
    """The library that draws the figures: a script of 1.1 MB, with what they need."""
    return zlib.decompress(_library())


def _library() -> bytes:
    return (files(HERE) / "plotly" / PLOTLY).read_bytes()


def _element(attributes: str, text: str) -> "Markup":
    from markupsafe import Markup

    opened = f"<script {attributes}>" if attributes else "<script>"
    return Markup(f"{opened}{text}</script>")  # noqa: S704 - letters, or files of kvsim


def inert(json_text: str) -> str:
    """JSON for a script element: "<" could end it, and may be spelled differently."""
    return json_text.replace("<", "\\u003c")


def style_sheet() -> str:
    """The look that all pages share."""
    return (files(HERE) / "page.css").read_text(encoding="utf-8")
