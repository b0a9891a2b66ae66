"""The page as it is, as a picture, and on paper."""

from kvsim.report.browser import photographed, printed
from kvsim.report.form import Form
from kvsim.report.page import make_page
from kvsim.results.result import Result


class Html(Form):
    """One file that opens offline."""

    def make(self, result: Result) -> bytes:
        """The HTML page, in UTF-8."""
        return make_page(result).encode()


class Png(Form):
    """The whole page in one picture, drawn by a browser of this machine."""

    def make(self, result: Result) -> bytes:
        return photographed(make_page(result))


class Pdf(Form):
    """The page on as many sheets as it takes, printed by a browser of this machine."""

    def make(self, result: Result) -> bytes:
        return printed(make_page(result))
