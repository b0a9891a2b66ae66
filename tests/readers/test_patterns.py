"""No regular expression of what reads others' files takes more than linear time.

Each pattern is pumped: pieces that it begins with, and blanks, digits, quotes and brackets,
thousands of times, under the method by which its module uses it.
"""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import kvsim

READ_BY = ("readers", "workload", "interchange", "observed", "plumbing", "model", "validate")
SIGNS = (" ", "\t", "\n", "a", "1", ",", ".", "-", "'", '"', "(", "[", "{", "- ", "a=", "a: ")
METHODS = {"search", "match", "fullmatch", "findall", "finditer", "sub"}
TIMES = 4
NUMBERS = (4_000, 16_000)
LONG_S = 0.04


def patterns(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from patterns(each)


def used() -> Iterator[Any]:
    """(where, the pattern, the names of the methods by which it is used)."""
    for found in pkgutil.walk_packages(kvsim.__path__, "kvsim."):
        if found.name.split(".")[1] not in READ_BY:
            continue
        try:
            module = importlib.import_module(found.name)
        except ModuleNotFoundError:  # a library of an extra
            continue
        # The file beside: a compiled module has no source for `inspect`.
        file = Path(kvsim.__path__[0], *found.name.split(".")[1:])
        source = (file / "__init__.py" if found.ispkg else file.with_suffix(".py")).read_text()
        for name, value in vars(module).items():
            for pattern in dict.fromkeys(patterns(value)):
                methods = METHODS & set(re.findall(rf"\b{name}\.(\w+)\(", source))
                methods = methods or METHODS & set(re.findall(r"(?<!\bre)\.(\w+)\(", source))
                yield f"{found.name}.{name}: {pattern.pattern}", pattern, methods


def a_char(items: Any) -> str:
    """A character that a set of them holds."""
    negated = items[0][0] is op.NEGATE
    for char in "1a ,.-_=\n\t'\"[]{}()/:#|xyzABC":
        held = any(
            (kind is op.LITERAL and ord(char) == value)
            or (kind is op.RANGE and value[0] <= ord(char) <= value[1])
            or (kind is op.CATEGORY and re.match(CLASSES[str(value)], char) is not None)
            for kind, value in items
        )
        if held != negated:
            return char
    return "?"


CLASSES = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S", "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip


def samples(tree: Any) -> list[str]:
    """Short texts that a parsed pattern takes, or nearly."""
    found = [""]
    for kind, value in tree:
        pieces = [""]
        if kind is op.LITERAL:
            pieces = [chr(value)]
        elif kind in (op.NOT_LITERAL, op.ANY):
            pieces = ["a"]
        elif kind is op.IN:
            pieces = [a_char(value)]
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, _, inner = value
            pieces = [each * max(least, 1) for each in samples(inner)[:2]]
            if not least:
                pieces.append("")
        elif kind is op.SUBPATTERN:
            pieces = samples(value[3])[:3]
        elif kind is op.BRANCH:
            pieces = [each for branch in value[1] for each in samples(branch)[:1]][:4]
        found = [before + piece for before in found[:3] for piece in pieces]
    return found[:4]


def pumps(pattern: re.Pattern[str]) -> set[str]:
    pieces = set(SIGNS)
    for text in samples(parser.parse(pattern.pattern, pattern.flags)):
        pieces |= {text[: len(text) * part // 4] for part in (1, 2, 3, 4)}
        pieces |= {text[:-1], f"{text[: len(text) // 2]} "}
    return pieces - {""}


def seconds(pattern: re.Pattern[str], method: str, text: str) -> float:
    call = getattr(pattern, method)
    began = time.process_time()
    found = call("", text) if method == "sub" else call(text)
    if method == "finditer":
        list(found)
    return time.process_time() - began


def quadratic(pattern: re.Pattern[str], methods: set[str]) -> Iterator[tuple[str, str]]:
    """The methods, and what the pattern is pumped with, that take more than linear time."""
    for method in methods:
        for piece in pumps(pattern):
            number = long_number(pattern, method, piece)
            if number is None:
                continue
            few, many = (
                min(seconds(pattern, method, piece * by + "\0") for _ in range(3))
                for by in (number // TIMES, number)
            )
            # Four times the text takes 16 times as long where time is quadratic.
            if many > 2.5 * TIMES * few:
                yield method, piece


def long_number(pattern: re.Pattern[str], method: str, piece: str) -> int | None:
    """How often a piece must be repeated until a search takes long, whatever the machine; None:
    even the longest text takes no time.
    """
    for times in NUMBERS:
        number = max(times // len(piece), times // TIMES)
        if seconds(pattern, method, piece * number + "\0") > LONG_S:
            return number
    return None


def test_patterns_take_linear_time() -> None:
    found = [(place, *fault) for place, *pattern in used() for fault in quadratic(*pattern)]
    assert not found


@pytest.mark.parametrize("text", [r"\s*x", r"a.*?b", r"^[ \t]*(?:-\s+)?\s*:"])
def test_quadratic_regex_check_finds_a_quadratic_pattern(text: str) -> None:
    assert any(quadratic(re.compile(text, re.MULTILINE), {"search"}))
