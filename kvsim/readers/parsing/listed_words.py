"""The words of a command that a manifest lists: `command:` and `args:` of Kubernetes or compose.

YAML is not parsed: items are taken off their lines, inline lists read as JSON where they are.
"""

import re
import shlex

_KEY = r"^(\s*)(-\s+)?({keys}):\s*(.*)$"
_ITEM = re.compile(r"^(\s*)-\s+(.*)$")
_INLINE = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([^\s,\[\]\"']+)")
_COMMENT = re.compile(r"\s#.*$")
_SERVES = re.compile(
    r"\b(?:vllm serve|vllm\.entrypoints|sglang serve|sglang\.launch_server|trtllm-serve)\b"
    r"|\bllama-server\s"
)


def listed_words(text: str, keys: str = "command|args|entrypoint") -> list[str]:
    """The items of all lists under these keys, in order; one text is split as a shell would."""
    return [word for _, words in lists(text, keys) for word in words]


def lists(text: str, keys: str = "command|args|entrypoint") -> list[tuple[str, list[str]]]:
    """Each list under one of these keys: its key, and its items. They are in order, but a command
    comes before its arguments.
    """
    opening = re.compile(_KEY.format(keys=keys))
    found: list[tuple[str, list[str]]] = []
    arguments = -1  # the column of the `args` above, of which no container's end was met since
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        match = opening.match(line)
        at += 1
        if match is None:
            if line.strip() and len(line) - len(line.lstrip()) < arguments:
                arguments = -1
            continue
        key, column, rest = match[3], match.start(3), _COMMENT.sub("", match[4]).strip()
        words: list[str] = []
        before = key != "args" and column == arguments and not match[2]
        found.insert(len(found) - before, (key, words))
        arguments = column if key == "args" else -1
        if rest.startswith("["):
            parts = [rest]
            while "]" not in parts[-1] and at < len(lines):
                parts.append(_COMMENT.sub("", lines[at]).strip())
                at += 1
            for item in _INLINE.findall(" ".join(parts)):
                words += _one("".join(item))
        elif rest and rest not in ("|", ">", "|-", ">-"):
            words += _split(rest)
        else:
            at = _block(lines, at, column, words)
    return found


def _block(lines: list[str], at: int, column: int, words: list[str]) -> int:
    """Take the items, or the folded text, below a key in this column: the line after them."""
    while at < len(lines):
        line = lines[at]
        item = _ITEM.match(line)
        depth = len(line) - len(line.lstrip())
        if line.strip() and not (depth > column or (item and depth >= column)):
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
    return _split(bare) if _SERVES.search(bare) and " " in bare else [bare]


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
