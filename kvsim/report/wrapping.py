"""Wrap texts to a given width between words, and long names after a separator."""

import re

# A number keeps its point and its comma, and a flag its leading hyphens.
_SPLIT = r"(?<=[/_ =])|(?<=\w-)|(?<=[.,])(?!\d)"


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most `width` cells, broken after separators if it has any."""
    lines = [""]
    for part in parts(text):
        rest = part
        if lines[-1] and cells(lines[-1] + rest.rstrip()) > width:
            lines.append("")
        while cells(lines[-1] + rest.rstrip()) > width:
            cut = 1 + sum(cells(rest[: at + 1]) <= width for at in range(1, len(rest)))
            lines[-1], rest = rest[:cut], rest[cut:]
            lines.append("")
        lines[-1] += rest
    return "\n".join(line.rstrip() for line in lines)


def by_words(text: str, width: int) -> str:
    """The text in lines of at most `width` cells, broken between words; a word that is wider than a
    line is broken after its separators.
    """
    lines = [""]
    for word in re.findall(r"\S+[^\S\n]*|\n", text):
        if word == "\n":
            lines.append("")
            continue
        if lines[-1] and cells(lines[-1] + word.rstrip()) > width:
            lines.append("")
        *whole, last = wrapped(word.rstrip(), width).split("\n")
        for part in whole:
            lines[-1] += part
            lines.append("")
        lines[-1] += last + word[len(word.rstrip()) :]
    return "\n".join(line.rstrip() for line in lines)


def parts(text: str) -> list[str]:
    """The pieces of a text between which a line may end."""
    return re.split(_SPLIT, text)


def cells(text: str) -> int:
    """Width of the text's longest line, in cells of a terminal."""
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))
