"""Long sentences and private words: `python -m support.readability`, part of `make check`.

It reads README, CHANGELOG, CONTRIBUTING, the pages of docs/, reports/ and calibration/, and the
help of all commands. Of the code it reads the docstrings of kvsim/ and evidence/, the messages of
their errors and the names of tests. It fails on a sentence of more than MOST_WORDS words, on words
that only this project knows, and on a docstring that begins without a noun or verb. Reports of
recipes are output, and are not read.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from typer.main import get_command

from kvsim.cli import app
from support import code_texts

ROOT = Path(__file__).parents[2]
MOST_WORDS = 25
PRIVATE = (
    *("spoke", "leap", "leaps", "leapt", "told", "crew", "becoming", "stretch", "stretches"),
    *("who", "whom", "alike", "anew", "lies", "lay", "stood", "rooms", "is met", "are met"),
    *("come out", "comes out", "came out", "held against", "thrown out"),
)
# Of the code and the names of tests alone: each took the place of a word of the field (in the next
# tier, with, is supported, skipped, in flight, disaggregated, freed, rejected).
PRIVATE_IN_CODE = (
    *("behind", "beside", "whose", "so many", "under way", "given back", "turned away"),
    *("passed over", "put off", "in turns", "no turn", "its turn", "their turn", "junction"),
    *("lane", "stands(?! for| in for)", "apart(?! from)"),
)
_PRIVATE = re.compile(rf"\b({'|'.join(PRIVATE)})\b", flags=re.IGNORECASE)
# A word before a colon may be a parameter's name.
_PRIVATE_IN_CODE = re.compile(
    rf"\b({'|'.join((*PRIVATE, *PRIVATE_IN_CODE))})\b(?!:)", flags=re.IGNORECASE
)
# A docstring that begins so has no noun: a pronoun, or the "of" of what the name says.
_NO_NOUN = re.compile(
    r"(?:It|Its|They|Those|These|This|That|What|Who|Whose|Where|Which|By|Of|As|From|To|On|With)\b"
)
_NO_SUBJECT = re.compile(r"\b(what|whatever|nobody|somebody)\b")
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


def complaints(text: str, private: re.Pattern[str] = _PRIVATE) -> Iterator[str]:
    """What is wrong in a paragraph."""
    for sentence in _ENDS.split(text):
        count = len(_WORD.findall(sentence))
        if count > MOST_WORDS:
            yield f"{count} words, at most {MOST_WORDS}: {sentence[:60]}..."
        for word in private.findall(sentence):
            yield f"{word}: say it in the field's words"


def complaints_of_code(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What is wrong in the docstrings and messages of a module, with the line."""
    for line, text in code_texts.docstrings(tree):
        begins = _NO_NOUN.match(text)
        if begins:
            yield line, f"{begins[0]} begins a docstring: name the thing, or say what it does"
        for paragraph in code_texts.paragraphs(text):
            yield from ((line, found) for found in complaints(paragraph, _PRIVATE_IN_CODE))
    for line, text in code_texts.messages(tree):
        yield from ((line, found) for found in complaints(text, _PRIVATE_IN_CODE))


def complaints_of_tests(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What is wrong in the names of a module's tests, with the line."""
    for line, name in code_texts.names_of_tests(tree):
        if _NO_SUBJECT.search(name):
            yield line, "a test's name says condition and outcome, not what, who or nobody"
        yield from ((line, found) for found in complaints(name, _PRIVATE_IN_CODE))


def main() -> int:
    """Print all complaints; 1 if there are any."""
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    for folder in ("docs", "reports", "calibration", "benchmarks"):
        pages += sorted((ROOT / folder).rglob("*.md"))
    read = [page for page in pages if page.parent.name != "recipes" or page.stem == "README"]
    texts = [
        (f"{page.relative_to(ROOT)}:{line}", text)
        for page in read
        for line, text in paragraphs(page.read_text())
    ]
    texts += helps(get_command(app))
    found = [f"{where}: {complaint}" for where, text in texts for complaint in complaints(text)]
    for folder, of in (
        ("kvsim", complaints_of_code),
        ("evidence", complaints_of_code),
        ("tests", complaints_of_tests),
    ):
        for path in sorted((ROOT / folder).rglob("*.py")):
            wrong = of(ast.parse(path.read_text()))
            found += [f"{path.relative_to(ROOT)}:{line}: {complaint}" for line, complaint in wrong]
    print("\n".join(found) or f"{len(read)} pages, all help texts and the code read well")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
