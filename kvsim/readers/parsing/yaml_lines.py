"""Plain values of a YAML file, line by line: `key: value` at any depth, and inline JSON.

YAML is not parsed. A value is a number, a word, quoted text, or JSON. Text blocks, anchors and
references are ignored.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_LINE = re.compile(r"(\s*)(?:-\s+)?[\"']?([A-Za-z_][\w.-]*)[\"']?:(?:\s+(.*))?$")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def yaml_values(text: str) -> Iterator[tuple[int, str, Any]]:
    """(indentation, key as `snake_case`, value) of each line.

    A key with a block below it has the value None; the lines of a mapping below `key:` follow.
    """
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is not None and not line.lstrip().startswith("#"):
            key = _CAMEL.sub("_", match[2]).replace("-", "_").lower()
            yield len(match[1]), key, _value(match[3] or "")


def _value(text: str) -> Any:
    text = text.strip()
    if text[:1] in ("{", "["):
        with suppress(ValueError):
            return json.loads(text)
    quoted = text[:1] in ("'", '"') and text.find(text[0], 1)
    if quoted and quoted > 0:
        return text[1:quoted]
    return _COMMENT.sub("", text).strip() or None
