"""What a page carries compressed, for tests to read."""

import base64
import json
import re
import zlib
from typing import Any


def letters_of(page: str, name: str) -> str:
    """What the script element with this id holds."""
    found = re.search(rf'<script type="text/plain" id="{name}">([^<]*)</script>', page)
    assert found is not None, name
    return found[1]


def text_of(letters: str) -> str:
    """The text that these letters are."""
    return zlib.decompress(base64.b64decode(letters)).decode()


def figures(page: str) -> dict[str, Any]:
    """The figures that the page draws, by the ids of their data."""
    names = re.findall(r'data-figure="([^"]+)"', page)
    return {name: json.loads(text_of(letters_of(page, name))) for name in names}
