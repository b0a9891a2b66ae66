"""Pages out of their templates: one look, one head, nothing of a user's text is markup."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

HERE = "kvsim.report"


def environment(package: str = HERE) -> "jinja2.Environment":
    """The templates of a package, and behind them the report's, which they extend and include."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=ChoiceLoader([PackageLoader(each, ".") for each in (package, HERE)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def rendered(template: str, package: str = HERE, **values: Any) -> str:
    """The page that a package's template makes of these values."""
    return environment(package).get_template(template).render(**values)


def inert(json_text: str) -> str:
    """JSON for a script element: "<" could end it, and may be spelled differently."""
    return json_text.replace("<", "\\u003c")


def plotly_js() -> str:
    """Plotly's bundle, for a page to carry."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())  # noqa: S704 - plotly's own bundle, not input


def style_sheet() -> str:
    """The look that all pages share."""
    from importlib.resources import files

    return (files(HERE) / "page.css").read_text(encoding="utf-8")
