"""Compute values as a shell does: cut and replaced parts of variables, and the output of printing
commands.

No command is run. The output of echo, printf, seq, basename and dirname is computed from the words.
"""

import fnmatch
import re
from collections.abc import Callable, Sequence

_CUT = re.compile(r"(##|#|%%|%)(.*)", re.DOTALL)
_REPLACED = re.compile(r"(//|/[#%]?)((?:\\.|[^/\\])*)/?(.*)", re.DOTALL)
_SLICE = re.compile(r":\s*(\d+|\s-\d+)\s*(?::\s*(\d+))?")
_CASES: dict[str, Callable[[str], str]] = {
    "^^": str.upper,
    ",,": str.lower,
    "^": lambda text: text[:1].upper() + text[1:],
    ",": lambda text: text[:1].lower() + text[1:],
}
_LONGEST = 512  # characters of a value that is cut
_FORMAT = re.compile(r"%%|%-?\d{0,3}(?:\.\d{1,3})?[sdfg]|\\[nt\\\"]|[^%\\]+|\\(?![nt\\\"])")
_ESCAPED = {"\\n": "\n", "\\t": "\t", "\\\\": "\\", '\\"': '"', "%%": "%"}
_MOST_NUMBERS = 4096


def changed(value: str, operation: str) -> str | None:
    """Apply `${NAME<operation>}` to a value; None if the operation is not supported or the text is
    too long.
    """
    if len(value) > _LONGEST or len(operation) > _LONGEST:
        return None
    if case := _CASES.get(operation):
        return case(value)
    if cut := _CUT.fullmatch(operation):
        return _without(value, cut[1], cut[2])
    if piece := _SLICE.fullmatch(operation):
        begin = int(piece[1])
        return value[begin:][: int(piece[2])] if piece[2] else value[begin:]
    if (replaced := _REPLACED.fullmatch(operation)) and replaced[2]:
        text = re.sub(r"\\(.)", r"\1", replaced[2])
        if set(text) & set("*?["):
            return None
        return value.replace(text, replaced[3], -1 if replaced[1] == "//" else 1)
    return None


def _without(value: str, sign: str, pattern: str) -> str:
    """Remove the shortest (#, %) or longest (##, %%) part that matches a pattern at the start (#)
    or end (%).
    """
    fits = re.compile(fnmatch.translate(pattern)).match
    lengths = range(len(value) + 1)
    for length in lengths if len(sign) == 1 else reversed(lengths):
        if sign[0] == "#" and fits(value[:length]):
            return value[length:]
        if sign[0] == "%" and fits(value[len(value) - length :]):
            return value[: len(value) - length]
    return value


def printed(words: Sequence[str]) -> str | None:
    """The output of a printing command without its final newline; None for an unknown command."""
    name, given = (words[0], list(words[1:])) if words else ("", [])
    if name == "echo":
        while given and given[0] in ("-n", "-e", "-en", "-ne"):
            given.pop(0)
        return " ".join(given)
    if name == "printf" and given:
        return _formatted(given[0], given[1:])
    if name == "seq":
        return _numbers(given)
    if name in ("basename", "dirname") and given and not given[0].startswith("-"):
        head, _, last = given[0].rstrip("/").rpartition("/")
        if name == "dirname":
            return head or "."
        return last.removesuffix(given[1]) if len(given) > 1 else last
    return None


def _formatted(form: str, given: Sequence[str]) -> str | None:
    """The output of printf; as in a shell, the format is repeated while words are left."""
    parts = _FORMAT.findall(form)
    if "".join(parts) != form:
        return None
    takes = sum(part.startswith("%") and part != "%%" for part in parts)
    found = []
    for at in range(0, max(len(given), 1), max(takes, 1)):
        mine = iter(given[at : at + max(takes, 1)])
        for part in parts:
            if part in _ESCAPED:
                found.append(_ESCAPED[part])
            else:
                found.append(_filled(part, next(mine, "")) if part.startswith("%") else part)
        if not takes:
            break
    return "".join(found).rstrip("\n")


def _filled(directive: str, word: str) -> str:
    """A word formatted by a printf directive; the word itself if it is not a number."""
    try:
        if directive[-1] == "s":
            return directive % word
        return directive % (int(word) if directive[-1] == "d" else float(word))
    except ValueError:
        return word


def _numbers(given: list[str]) -> str | None:
    """The output of seq with FIRST, STEP and LAST, and optionally a separator after -s."""
    separator = "\n"
    while given and given[0].startswith("-s"):
        own = given.pop(0)[2:]
        if not own and not given:
            return None
        separator = own or given.pop(0)
    if not 1 <= len(given) <= 3 or not all(re.fullmatch(r"-?\d{1,9}", each) for each in given):
        return None
    numbers = [int(each) for each in given]
    first, step, last = (
        (1, 1, numbers[0]) if len(numbers) == 1 else (numbers[0], 1, numbers[1])
        if len(numbers) == 2 else tuple(numbers)
    )  # fmt: skip
    if not step:
        return None
    every = range(first, last + (1 if step > 0 else -1), step)
    return None if len(every) > _MOST_NUMBERS else separator.join(map(str, every))
