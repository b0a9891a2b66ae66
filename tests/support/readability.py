"""Long sentences and private words: `python -m support.readability`, part of `make check`.

It reads README, CHANGELOG, CONTRIBUTING, the pages of docs/, reports/ and calibration/, and the
help of all commands. It fails on a sentence of more than MOST_WORDS words, and on words that only
this project knows. Reports of recipes are output, and are not read.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from typer.main import get_command

from kvsim.cli import app

ROOT = Path(__file__).parents[2]
MOST_WORDS = 25
PRIVATE = (
    *("spoke", "leap", "leaps", "leapt", "told", "crew", "becoming", "stretch", "stretches"),
    *("who", "whom", "alike", "anew", "lies", "lay", "stood", "rooms", "is met", "are met"),
    *("come out", "comes out", "came out", "held against", "thrown out"),
)
_PRIVATE = re.compile(rf"\b({'|'.join(PRIVATE)})\b", flags=re.IGNORECASE)
# An error message (`what; got value; limit; remedy`) in a table ends at each semicolon, too.
_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[:;])\s+(?=[A-Z`(\[0-9]|kvsim|CODE|got |limit )")
_WORD = re.compile(r"[A-Za-z0-9$%][\w'.,%/-]*")


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Each paragraph of a page with its line; code counts as one word."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline" and token.map is not None:
            words = {"code_inline": "CODE", "softbreak": " ", "hardbreak": " "}
            parts = [words.get(part.type, part.content) for part in token.children or ()]
            yield token.map[0] + 1, "".join(parts)


def helps(command: Any, path: str = "kvsim") -> Iterator[tuple[str, str]]:
    """The help of a command, of its options and of the commands below it."""
    for paragraph in (command.help or "").split("\n\n"):
        yield path, " ".join(paragraph.split())
    for option in command.params:
        yield f"{path} {option.name}", getattr(option, "help", None) or ""
    for name, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{path} {name}")


def complaints(text: str) -> Iterator[str]:
    """What is wrong in a paragraph."""
    for sentence in _ENDS.split(text):
        count = len(_WORD.findall(sentence))
        if count > MOST_WORDS:
            yield f"{count} words, at most {MOST_WORDS}: {sentence[:60]}..."
        for word in _PRIVATE.findall(sentence):
            yield f"{word}: say it in the field's words"


def main() -> int:
    """Print all complaints; 1 if there are any."""
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    for folder in ("docs", "reports", "calibration"):
        pages += sorted((ROOT / folder).rglob("*.md"))
    read = [page for page in pages if page.parent.name != "recipes" or page.stem == "README"]
    texts = [
        (f"{page.relative_to(ROOT)}:{line}", text)
        for page in read
        for line, text in paragraphs(page.read_text())
    ]
    texts += helps(get_command(app))
    found = [f"{where}: {complaint}" for where, text in texts for complaint in complaints(text)]
    print("\n".join(found) or f"{len(read)} pages and all help texts: no sentence is too long")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
