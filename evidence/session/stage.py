"""One stage of a session, and the journal from which a session resumes."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from evidence.session.plan import SessionPlan
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import read_object
from kvsim.plumbing.writing import write_text

Status = Literal["done", "skipped", "failed"]


class OutOfTime(Exception):  # noqa: N818 - no fault: what has been done is kept
    """The session's time has run out during a stage, which resumes when it is run again."""


@dataclass(frozen=True, slots=True)
class Session:
    """A running session.

    plan: device, models and sizes. out: folder of its files. check_time: raises OutOfTime if the
    session's time has run out.
    """

    plan: SessionPlan
    out: Path
    check_time: Callable[[], None]

    def write(self, name: str, found: object) -> None:
        """Write a JSON file of the session, completely or not at all."""
        write_text(self.out / name, json.dumps(found, indent=1) + "\n")


class SessionStage(NamedTuple):
    """A stage of a session: work that is done once, in a separate process.

    name: unique in the session. minutes: rough duration on one large GPU. run: the work; returns
    figures for the journal. needs: packages besides torch and numpy. after: names of the stages
    that write files which this stage reads. most_minutes: limit after which it is ended.
    """

    name: str
    minutes: float
    run: Callable[[Session], dict[str, Any]]
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    most_minutes: float | None = None

    def missing(self) -> list[str]:
        """Required packages that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


@dataclass(slots=True)
class Journal:
    """The outcome of each stage, in session.json, which is written after every stage."""

    path: Path
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, out: Path) -> "Journal":
        """The journal in a folder; empty if there is none."""
        path = out / "session.json"
        entries = read_object(path) if path.exists() else {}
        for name, entry in entries.items():
            if not isinstance(entry, dict) or not isinstance(entry.get("status"), str):
                raise InputError("no entry of a session", where=f"{path}.{name}", value=entry)
        return cls(path, entries)

    def done(self, name: str) -> bool:
        """Whether the stage is done, so that it need not run again."""
        return self.entries.get(name, {}).get("status") == "done"

    def note(self, name: str, status: Status, **figures: Any) -> None:
        """Write the outcome of a stage."""
        self.entries[name] = {"status": status, **figures}
        write_text(self.path, json.dumps(self.entries, indent=1) + "\n")
