"""Parse `key=value` and `'key': value` in the printed form of a Python object; plain values only.

The text is never evaluated, since it comes from a file and may contain any object.
"""

import re
from collections.abc import Container
from typing import Any

_PAIR = re.compile(
    r"""(?:'(?P<quoted>\w+)':\s*|\b(?P<bare>\w+)=)
        (?:'(?P<text>[^']*)'|(?P<plain>-?[\w.+]+(?:[-/:][\w.+]+)*)|(?P<list>\['[^']*'))""",
    re.VERBOSE,
)
_NAME = re.compile(r"'(?P<quoted>\w+)':|(?<![\w.'\"-])(?P<bare>[A-Za-z_]\w*)=")
_OFF = re.compile(
    r"\s*(?:(?:None|False|0|0\.0|-1|'(?:auto|none|None|null|default|\{\})?'|auto|\[\s*\])\s*)?"
    r"(?:,|$)"
)
_PLAIN: dict[str, Any] = {"None": None, "True": True, "False": False}


def pairs_of(text: str, names: Container[str]) -> dict[str, Any]:
    """The pairs with a name in `names`, without those of nested objects; of duplicates
    the first.
    """
    found: dict[str, Any] = {}
    for match in _PAIR.finditer(_flat(text)):
        name = match["quoted"] or match["bare"]
        if name in names and name not in found:
            if match["text"] is not None:
                found[name] = match["text"]
            elif match["list"] is not None:
                found[name] = match["list"][2:-1]
            else:
                found[name] = _PLAIN.get(match["plain"], match["plain"])
    return found


def set_names(text: str) -> list[str]:
    """Names of the pairs with a value other than None, empty, False, 0 or auto, without nested
    objects.
    """
    flat = _flat(text, "~")
    names = (
        match["quoted"] or match["bare"]
        for match in _NAME.finditer(flat)
        if not _OFF.match(flat, match.end())
    )
    return list(dict.fromkeys(names))


def inside(text: str, name: str) -> str | None:
    """The text inside the brackets of `name=Type(...)` or `'name': {...}`; None if it
    is not there.
    """
    begin = re.search(rf"(?:'{name}':\s*|\b{name}=\w*)(?=[({{])", text)
    if begin is None:
        return None
    depth = 0
    for bracket in re.finditer(r"[(){}]", text[begin.end() :]):
        depth += 1 if bracket[0] in "({" else -1
        if not depth:
            return text[begin.end() + 1 : begin.end() + bracket.start()]
    return text[begin.end() + 1 :]  # an excerpt that ends before they do


def _flat(text: str, nested: str = "") -> str:
    """The text without the contents of nested brackets; the outermost pair remains. `nested`
    replaces each removed content.
    """
    kept: list[str] = []
    depth, opened = 0, text.lstrip()[:1] in ("{", "(")
    for part in re.split(r"([(){}])", text):
        if part in ("(", "{"):
            depth += 1
        elif part in (")", "}"):
            depth -= 1
        elif depth <= (1 if opened else 0):
            kept.append(part)
        elif nested and part.strip():
            kept.append(nested)
    return " ".join(kept)
