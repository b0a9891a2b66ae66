"""The page as a picture."""

from kvsim.report.browser import photographed
from kvsim.report.form import Form
from kvsim.report.page import make_page
from kvsim.results.result import Result


class Png(Form):
    """Drawn by a browser of this machine."""

    def make(self, result: Result) -> bytes:
        """The whole page in one picture."""
        return photographed(make_page(result))
