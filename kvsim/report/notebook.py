"""A result in a notebook: the output of `kvsim run` as HTML."""

from io import StringIO

from kvsim.report.terminal import print_result
from kvsim.results.result import Result

COLUMNS = 100
FORM = '<pre style="line-height: 1.25; overflow-x: auto">{code}</pre>'


def html(result: Result) -> str:
    """The tables and sentences of `kvsim run` as HTML."""
    from rich.console import Console

    console = Console(
        record=True, file=StringIO(), width=COLUMNS, force_terminal=True, color_system="truecolor"
    )
    print_result(result, console)
    return console.export_html(inline_styles=True, code_format=FORM)
