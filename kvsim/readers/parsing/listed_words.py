"""The words of a command that a manifest lists: `command:` and `args:` of Kubernetes or compose.

YAML is not parsed: items are taken off their lines, inline lists read as JSON where they are.
"""

import re
import shlex

_KEY = r"^(\s*)(?:-\s+)?({keys}):\s*(.*)$"
_ITEM = re.compile(r"^(\s*)-\s+(.*)$")
_INLINE = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([^\s,\[\]\"']+)")
_COMMENT = re.compile(r"\s#.*$")


def listed_words(text: str, keys: str = "command|args|entrypoint") -> list[str]:
    """The items of all lists under these keys, in order; one text is split as a shell would."""
    opening = re.compile(_KEY.format(keys=keys))
    words: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        match = opening.match(lines[at])
        at += 1
        if match is None:
            continue
        indent, rest = len(match[1]), _COMMENT.sub("", match[3]).strip()
        if rest.startswith("["):
            parts = [rest]
            while "]" not in parts[-1] and at < len(lines):
                parts.append(_COMMENT.sub("", lines[at]).strip())
                at += 1
            words += ["".join(found) for found in _INLINE.findall(" ".join(parts))]
        elif rest and rest not in ("|", ">", "|-", ">-"):
            words += _split(rest)
        else:
            at = _block(lines, at, indent, words)
    return words


def _block(lines: list[str], at: int, indent: int, words: list[str]) -> int:
    """Take the items, or the folded text, below a key; returns the line after them."""
    while at < len(lines):
        line = lines[at]
        item = _ITEM.match(line)
        depth = len(line) - len(line.lstrip())
        if line.strip() and not (depth > indent or (item and depth >= indent)):
            break
        if item:
            words += _one(_COMMENT.sub("", item[2]).strip())
        elif line.strip() and not line.lstrip().startswith("#"):
            words += _split(line.strip().rstrip("\\"))
        at += 1
    return at


def _one(item: str) -> list[str]:
    """A list item is one word, unless it is a whole command for a shell."""
    bare = item.strip("\"'")
    return _split(bare) if "vllm serve" in bare else [bare]


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
