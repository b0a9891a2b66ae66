"""The page."""

from kvsim.report.form import Form
from kvsim.report.page import make_page
from kvsim.results.result import Result


class Html(Form):
    """One file that opens offline."""

    def make(self, result: Result) -> bytes:
        """The page, in UTF-8."""
        return make_page(result).encode()
