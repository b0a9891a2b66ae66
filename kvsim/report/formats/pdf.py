"""The page on paper."""

from kvsim.report.browser import printed
from kvsim.report.form import Form
from kvsim.report.page import make_page
from kvsim.results.result import Result


class Pdf(Form):
    """Printed by a browser of this machine."""

    def make(self, result: Result) -> bytes:
        """As many sheets as it takes."""
        return printed(make_page(result))
