"""Tables of a what-if on a narrow terminal: nothing of them is cut off."""

import io
from collections import Counter

import pytest
from rich.console import Console

from kvsim.whatif.findings import FindingsTable, terminal_table

HEADS = ("", "today", "instead", "e2e_s.mean", "")
ROWS = (
    ("kv_cache_dtype", "auto", "fp8", "-58 % (-94 to +189)", "no difference seen"),
    ("long_prefill_token_threshold", "0", "512", "-5 % (-9 to -1)", "refuses 947 requests"),
)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_letter_is_there_whatever_the_width(width: int) -> None:
    console = Console(width=width, file=io.StringIO())
    console.print(terminal_table(FindingsTable("Changes", "", HEADS, ROWS)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    wanted = " ".join(["Changes", *HEADS, *(cell for row in ROWS for cell in row)])
    letters = Counter(text) - Counter(" \n─" * len(text))
    assert letters == Counter(wanted.replace(" ", ""))
