"""The log of a measurement: JSON lines, written as the timings come, read again to go on."""

import json
from pathlib import Path
from typing import Any, NamedTuple, Self

from kvsim.backend.measure.grid import StepPlan
from kvsim.backend.measure.timing import Timing
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_string
from kvsim.plumbing.reading.json_text import loads


class TimingRow(NamedTuple):
    """One timing of one plan in one round."""

    turn: int
    plan: StepPlan
    timing: Timing


class Log:
    """Lines: the setup first, then "ceilings", "sentinel", "dropped" and "timing" entries.

    rows, sentinels, ceilings: what the file holds; done: the (round, plan) pairs of the rows.
    dropped: plans that the device has no memory for, and why.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[TimingRow] = []
        self.sentinels: list[Timing] = []
        self.dropped: dict[StepPlan, str] = {}
        self.ceilings: dict[str, Any] | None = None

    @classmethod
    def open(cls, path: Path, setup: dict[str, Any]) -> Self:
        """Begin a log, or go on with one of the same setup; InputError names what differs."""
        log = cls(path)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            log._append({"setup": setup})
            return log
        lines = read_string(path).splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        if whole != lines:  # it was stopped in the middle of a line
            path.write_text("".join(whole), encoding="utf-8")
        for number, line in enumerate(whole, 1):
            try:
                log._take(loads(line), setup, number)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(
                    f"no line of a measurement's log: {error!r}", where=f"{path}:{number}"
                ) from None
        if not whole:
            log._append({"setup": setup})
        return log

    @property
    def done(self) -> set[tuple[int, StepPlan]]:
        """The (round, plan) pairs that the log already holds."""
        return {(row.turn, row.plan) for row in self.rows}

    def note(self, row: TimingRow) -> None:
        """Keep a timing."""
        self.rows.append(row)
        plan = row.plan._asdict()
        self._append({"timing": row.timing._asdict(), "round": row.turn, "plan": plan})

    def note_dropped(self, plan: StepPlan, why: str) -> None:
        """The device has no memory for this plan."""
        self.dropped[plan] = why
        self._append({"dropped": plan._asdict(), "why": why})

    def note_sentinel(self, timing: Timing) -> None:
        """Keep a timing of the sentinel."""
        self.sentinels.append(timing)
        self._append({"sentinel": timing._asdict()})

    def note_ceilings(self, ceilings: dict[str, Any]) -> None:
        """Keep the ceilings."""
        self.ceilings = ceilings
        self._append({"ceilings": ceilings})

    def _take(self, entry: dict[str, Any], setup: dict[str, Any], number: int) -> None:
        if number == 1:
            # JSON has no tuples: compare what would be written.
            if entry["setup"] != json.loads(json.dumps(setup)):
                raise InputError(
                    "the log was begun with another setup",
                    where=str(self.path),
                    value=entry["setup"],
                    limit=setup,
                    remedy="give another file, or remove this one",
                )
        elif "ceilings" in entry:
            self.ceilings = dict(entry["ceilings"])
        elif "sentinel" in entry:
            self.sentinels.append(_timing(entry["sentinel"]))
        elif "dropped" in entry:
            self.dropped[StepPlan.from_record(entry["dropped"])] = str(entry["why"])
        else:
            plan = StepPlan.from_record(entry["plan"])
            self.rows.append(TimingRow(int(entry["round"]), plan, _timing(entry["timing"])))

    def _append(self, entry: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _timing(record: dict[str, Any]) -> Timing:
    """ValueError for what is no timing."""
    timing = Timing(**record)
    if not all(type(value) in (int, float) and value >= 0 for value in timing):
        raise ValueError("a timing is made of numbers")
    return timing
