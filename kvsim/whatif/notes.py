"""Notes on runs that are only summarised, with each kind of note given once."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WORKLOAD = "workload_notes"  # of a row: what was left out or drawn again, a list as JSON
COUNTED_ELSEWHERE = ("saturated", "refused")  # a what-if counts and ranks by these
OF_WINDOWS = ("window",)  # whose numbers no sentence of a what-if has


def noted(rows: Sequence[Mapping[Any, Any]]) -> list[str]:
    """Sentences on flat rows of runs.

    Notes that differ in their numbers alone are of one kind. The first of a kind stands for all,
    with the number of runs that have one.
    """
    kinds: dict[str, tuple[str, int]] = {}
    for row in rows:
        for text in dict.fromkeys(_notes(row)):
            kind = re.sub(r"[\d.,]+", "", text)
            first, runs = kinds.get(kind, (text, 0))
            kinds[kind] = first, runs + 1
    of = len(rows)
    return [
        text
        if of == 1
        else f"{'All' if runs == of else f'{runs:,} of'} {of:,} runs; the first such run: {text}"
        for text, runs in kinds.values()
    ]


def _notes(row: Mapping[str, Any]) -> Iterable[str]:
    for note in _listed(row.get(WORKLOAD)):
        yield f"Requests: {note}."
    for note in _listed(row.get("notes")):
        if note["about"] not in COUNTED_ELSEWHERE + OF_WINDOWS:
            yield str(note["text"])


def _listed(text: Any) -> list[Any]:
    """A list kept as JSON; empty where a row of an older sweep has none."""
    return list(json.loads(text)) if isinstance(text, str) else []
