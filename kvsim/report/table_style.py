"""The style of every terminal table: a bold title on the left, a rule under the heads, nothing
else. Names that do not fit break between words.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def empty_table(title: str | None = None) -> "Table":
    """A table without columns or rows."""
    from rich import box

    from kvsim.report.whole_words import WordTable

    return WordTable(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
