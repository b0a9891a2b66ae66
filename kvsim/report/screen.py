"""A terminal's screen, which a brief answer fits: its lines, and how many a text takes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

LINES = 24


def height(text: str, console: "Console") -> int:
    """Lines that the text takes at the console's width."""
    return len(console.render_lines(text, pad=False))


def print_plain(console: "Console", *texts: str) -> None:
    """Print each text unchanged, without markup or colours."""
    for text in texts:
        console.print(text, markup=False, highlight=False)
