"""Long sentences and private words: `python -m support.readability`, part of `make check`.

It reads README, CHANGELOG, CONTRIBUTING and the pages of docs/, and fails on a sentence of more
than MOST_WORDS words and on words that only this project knows. The pages of FIRST, which a new
user reads first, have sentences of at most FIRST_WORDS words.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
MOST_WORDS, FIRST_WORDS = 30, 25
FIRST = (
    *("README", "answers", "compare-allocators", "doctor", "explain-a-hit-rate"),
    *("find-the-best-flag", "first-scenario", "size-a-pool", "teach-paging", "what-if"),
)
PRIVATE = ("spoke", "leap", "leaps", "leapt", "told", "crew", "becoming", "stretch", "stretches")
_ENDS = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`(\[0-9]|kvsim|CODE)")
_WORD = re.compile(r"[A-Za-z0-9$%][\w'.,%/-]*")


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """The line where a paragraph begins and each of its sentences; code counts as one word."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline" and token.map is not None:
            words = {"code_inline": "CODE", "softbreak": " ", "hardbreak": " "}
            parts = [words.get(part.type, part.content) for part in token.children or ()]
            for sentence in _ENDS.split("".join(parts)):
                yield token.map[0] + 1, sentence


def complaints(text: str, most: int = MOST_WORDS) -> Iterator[str]:
    """What is wrong in a page, with the line of its paragraph."""
    for line, sentence in sentences(text):
        count = len(_WORD.findall(sentence))
        if count > most:
            yield f"{line}: {count} words, at most {most}: {sentence[:60]}..."
        for word in PRIVATE:
            if re.search(rf"\b{word}\b", sentence, flags=re.IGNORECASE):
                yield f"{line}: {word}: say it in the field's words"


def main() -> int:
    """Print all complaints; 1 if there are any."""
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    pages += sorted((ROOT / "docs").glob("*.md"))
    found = [
        f"{page.relative_to(ROOT)}:{complaint}"
        for page in pages
        for complaint in complaints(
            page.read_text(), FIRST_WORDS if page.stem in FIRST else MOST_WORDS
        )
    ]
    print("\n".join(found) or f"{len(pages)} pages: no sentence of more than {MOST_WORDS} words")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
