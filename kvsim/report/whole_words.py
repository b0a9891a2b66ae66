"""Terminal tables in which narrow columns break between words, and names after separators.

rich breaks a long word wherever the column ends: `--kv-cache-dty` and `pe`.
"""

from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.containers import Lines
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kvsim.report.wrapping import by_words, cells, parts


class WordText(Text):
    """A text of one style that breaks inside a word only if the word is wider than its column."""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widest = max(cells(part.rstrip()) for part in parts(self.plain.replace("\n", " ")))
        return Measurement(widest, max(widest, cells(self.plain)))

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        """The lines of the text in a column of this width."""
        if options.get("no_wrap") or cells(self.plain) <= width:
            return super().wrap(console, width, **options)
        lines = Lines(Text(line) for line in by_words(self.plain, width).split("\n"))
        lines.justify(console, width, justify=options.get("justify") or "left", overflow="fold")
        return lines


class WordTable(Table):
    """A table with its texts as WordText, unless a text brings a style."""

    def add_column(
        self, header: RenderableType = "", footer: RenderableType = "", **options: Any
    ) -> None:
        """Add a column with its head."""
        super().add_column(_whole(header), footer, **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row; markup in its texts is interpreted, as by rich."""
        super().add_row(*(_whole(cell) for cell in cells if cell is not None), **options)


def _whole(cell: RenderableType) -> RenderableType:
    if not isinstance(cell, str):
        return cell
    text = Text.from_markup(cell)
    return text if text.spans else WordText(text.plain)
