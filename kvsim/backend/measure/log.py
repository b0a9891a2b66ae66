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
    """Lines: the setup first, then "plans", "facts", "ceilings", "sentinel", "dropped" and "timing"
    entries. So samples are made from it anywhere, and not only where it was measured.

    setup, rows, sentinels, ceilings: what the file holds; done: the (round, plan) pairs of the
    rows. plans: those that were to be timed; facts: of device and software, as they were last
    noted. dropped: plans that the device has no memory for, and why.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.setup: dict[str, Any] = {}
        self.plans: list[StepPlan] = []
        self.facts: dict[str, Any] = {}
        self.rows: list[TimingRow] = []
        self.sentinels: list[Timing] = []
        self.dropped: dict[StepPlan, str] = {}
        self.ceilings: dict[str, Any] | None = None

    @classmethod
    def open(cls, path: Path, setup: dict[str, Any]) -> Self:
        """Begin a log, or go on with one of the same setup; InputError names what differs."""
        log = cls(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            log._load(whole=True)
        # JSON has no tuples: compare what would be written.
        wanted = json.loads(json.dumps(setup))
        if not log.setup:
            log.setup = wanted
            log._append({"setup": setup})
        elif log.setup != wanted:
            raise InputError(
                "the log was begun with another setup",
                where=str(path),
                value=log.setup,
                limit=setup,
                remedy="give another file, or remove this one",
            )
        return log

    @classmethod
    def read(cls, path: Path) -> Self:
        """A log as it is; the file is not touched. InputError where it is none."""
        log = cls(path)
        log._load(whole=False)
        if not log.setup:
            raise InputError("no log of a measurement", where=str(path), value="an empty file")
        return log

    def _load(self, *, whole: bool) -> None:
        """Read the file's lines without a truncated last one; `whole` removes that from the file
        too.
        """
        lines = read_string(self.path).splitlines(keepends=True)
        ended = [line for line in lines if line.endswith("\n")]
        if whole and ended != lines:
            self.path.write_text("".join(ended), encoding="utf-8")
        for number, line in enumerate(ended, 1):
            try:
                self._take(loads(line), number)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(
                    f"no line of a measurement's log: {error!r}", where=f"{self.path}:{number}"
                ) from None

    @property
    def done(self) -> set[tuple[int, StepPlan]]:
        """The (round, plan) pairs that the log already holds."""
        return {(row.turn, row.plan) for row in self.rows}

    @property
    def finished_rounds(self) -> list[int]:
        """Rounds in which every plan was timed, or dropped."""
        wanted = {plan for plan in self.plans if plan not in self.dropped}
        timed: dict[int, set[StepPlan]] = {}
        for turn, plan in self.done:
            timed.setdefault(turn, set()).add(plan)
        return [turn for turn in sorted(timed) if wanted <= timed[turn]]

    def note_plans(self, plans: list[StepPlan]) -> None:
        """Record the plans that will be timed."""
        if self.plans != plans:
            self.plans = plans
            self._append({"plans": [plan._asdict() for plan in plans]})

    def note_facts(self, facts: dict[str, Any]) -> None:
        """Facts of device and software, as they are now."""
        self.facts = facts
        self._append({"facts": facts})

    def note(self, row: TimingRow) -> None:
        """Add a timing to the log."""
        self.rows.append(row)
        plan = row.plan._asdict()
        self._append({"timing": row.timing._asdict(), "round": row.turn, "plan": plan})

    def note_dropped(self, plan: StepPlan, why: str) -> None:
        """Record that the device has no memory for this plan, and why."""
        self.dropped[plan] = why
        self._append({"dropped": plan._asdict(), "why": why})

    def note_sentinel(self, timing: Timing) -> None:
        """Add a timing of the sentinel to the log."""
        self.sentinels.append(timing)
        self._append({"sentinel": timing._asdict()})

    def note_ceilings(self, ceilings: dict[str, Any]) -> None:
        """Add the ceilings to the log."""
        self.ceilings = ceilings
        self._append({"ceilings": ceilings})

    def _take(self, entry: dict[str, Any], number: int) -> None:
        if number == 1:
            self.setup = dict(entry["setup"])
        elif "plans" in entry:
            self.plans = [StepPlan.from_record(plan) for plan in entry["plans"]]
        elif "facts" in entry:
            self.facts = dict(entry["facts"])
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
    """Read a timing from a log record; ValueError if it is none."""
    timing = Timing(**record)
    if not all(type(value) in (int, float) and value >= 0 for value in timing):
        raise ValueError("a timing is made of numbers")
    return timing
