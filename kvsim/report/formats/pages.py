"""The report as an HTML page, as a screenshot, and as a printed PDF."""

from kvsim.report.browser import photographed, printed
from kvsim.report.form import Form
from kvsim.report.page import make_page
from kvsim.results.result import Result


class Html(Form):
    """A single HTML file that opens offline."""

    def make(self, result: Result) -> bytes:
        """The HTML page, in UTF-8."""
        return make_page(result).encode()


class Png(Form):
    """A screenshot of the whole page, taken by a browser of this machine."""

    def make(self, result: Result) -> bytes:
        return photographed(make_page(result))


class Pdf(Form):
    """The page printed on as many sheets as needed, by a browser of this machine."""

    def make(self, result: Result) -> bytes:
        return printed(make_page(result))
