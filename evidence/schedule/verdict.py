"""Compares recorded and simulated rows, and reports the first difference in context."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.schedule.engines import read_case
from evidence.schedule.rows import Row

ROWS_BEFORE = 3
MISSING = "row"  # the field of a difference where only one side has a row
FIELDS = (
    "side",
    *("step", "t0", "t1", "mode", "prefill", "decode", "running", "waiting", "used", "free"),
    *("cached_free", "locked", "ratio", "used_end", "free_end", "cached_free_end", "locked_end"),
    *("evicted", "preempted", "retracted", "aborted", "admitted", "sched", "first", "finished"),
    *("drafts", "accepted"),
    *("host_used", "inflight", "dropped", "host_evicted", "writes", "loads", "acks", "l3"),
    *("blocked", "dt", "wait", "host_used_end"),
    "stall",
    *("op", "k", "rc", "batch", "bytes", "geometry", "request", "slot", "hit", "cells"),
)


@dataclass(frozen=True)
class Verdict:
    """The comparison of one case.

    steps: number of recorded rows. first_difference: None if all rows are equal, else {step, field,
    recorded, simulated, before}. If several engines have separate rows, it also has the side. If
    only one side has the row, the field is `row` and the other side is None.
    """

    case: str
    steps: int
    first_difference: dict[str, Any] | None

    @property
    def equal(self) -> bool:
        return self.first_difference is None

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON data."""
        return {
            "case": self.case,
            "steps": self.steps,
            "equal": self.equal,
            "first_difference": self.first_difference,
        }

    def text(self) -> str:
        """The verdict as text; a difference is printed with the rows before it."""
        found = self.first_difference
        if found is None:
            return f"{self.case}: {self.steps:,} steps equal"
        where = f"step {found['step']}"
        if "side" in found:
            where = f"row {found['step']} of {found['side']}"
        lines = [f"{self.case}: {where} differs in {found['field']!r}"]
        lines += [f"  before     {json.dumps(row)}" for row in found["before"]]
        lines += [
            f"  {side:9}  {_shown(found[side], found['field'])}"
            for side in ("recorded", "simulated")
        ]
        return "\n".join(lines)


def validate_case(path: Path) -> Verdict:
    """Replay the case at `path` and compare with its recorded rows."""
    case = read_case(path)
    recorded = case.expected(path)
    return compare(case.name, recorded, case.simulated(recorded))


def compare(name: str, recorded: Sequence[Row], simulated: Sequence[Row]) -> Verdict:
    """Compare row by row and field by field; a row of only one side is a difference in `row`."""
    for index in range(max(len(recorded), len(simulated))):
        theirs = recorded[index] if index < len(recorded) else None
        ours = simulated[index] if index < len(simulated) else None
        if theirs == ours:
            continue
        field = MISSING if theirs is None or ours is None else _first_field(theirs, ours)
        side = (theirs or ours or {}).get("side")
        found = {} if side is None else {"side": side}
        step = index - next(
            (at for at, row in enumerate(recorded) if row.get("side") == side), index
        )
        return Verdict(
            name,
            len(recorded),
            {
                **found,
                "step": index if side is None else step,
                "field": field,
                "recorded": _value(theirs, field),
                "simulated": _value(ours, field),
                "before": list(recorded[max(0, index - ROWS_BEFORE) : index]),
            },
        )
    return Verdict(name, len(recorded), None)


def _first_field(theirs: Row, ours: Row) -> str:
    keys = (*FIELDS, *(theirs.keys() | ours.keys()))
    return next(key for key in keys if theirs.get(key) != ours.get(key))


def _value(row: Row | None, field: str) -> Any:
    """A row's value of a field; the whole row if only one side has it."""
    return row if row is None or field == MISSING else row.get(field)


def _shown(value: Any, field: str) -> str:
    return "no such row" if field == MISSING and value is None else json.dumps(value)
