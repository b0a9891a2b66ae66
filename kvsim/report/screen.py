"""Height of texts on a terminal, so that a short answer fits the screen."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

LINES = 24


def height(text: str, console: "Console") -> int:
    """Number of lines that the text takes at the console's width."""
    return len(console.render_lines(text, pad=False))


def print_plain(console: "Console", *texts: str) -> None:
    """Print each text unchanged, without markup or colours."""
    for text in texts:
        console.print(text, markup=False, highlight=False)
