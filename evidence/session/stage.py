"""One stage of a session, and the journal that lets a session go on where it ended."""

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
    """The session's time is over in the middle of a stage that goes on when it is run again."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session in progress.

    plan: device, models and sizes. out: folder of its files. check_time: raises OutOfTime when the
    session's time is over.
    """

    plan: SessionPlan
    out: Path
    check_time: Callable[[], None]

    def write(self, name: str, found: object) -> None:
        """A JSON file of the session, whole or not at all."""
        write_text(self.out / name, json.dumps(found, indent=1) + "\n")


class SessionStage(NamedTuple):
    """A stage of a session: a piece of work that is done once, in a process of its own.

    name: unique in the session. minutes: rough duration on one large GPU. run: the work; it returns
    figures for the journal. needs: packages in addition to torch and numpy. after: names of the
    stages that write files which this stage reads. most_minutes: when it is ended, if not by the
    session.
    """

    name: str
    minutes: float
    run: Callable[[Session], dict[str, Any]]
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    most_minutes: float | None = None

    def missing(self) -> list[str]:
        """Packages it needs that are not here."""
        return [name for name in self.needs if find_spec(name) is None]


@dataclass(slots=True)
class Journal:
    """The outcome of each stage: session.json, written after every one."""

    path: Path
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, out: Path) -> "Journal":
        """The journal of a folder; empty if it has none."""
        path = out / "session.json"
        entries = read_object(path) if path.exists() else {}
        for name, entry in entries.items():
            if not isinstance(entry, dict) or not isinstance(entry.get("status"), str):
                raise InputError("no entry of a session", where=f"{path}.{name}", value=entry)
        return cls(path, entries)

    def done(self, name: str) -> bool:
        """Whether a stage need not be run again."""
        return self.entries.get(name, {}).get("status") == "done"

    def note(self, name: str, status: Status, **figures: Any) -> None:
        """Keep what became of a stage."""
        self.entries[name] = {"status": status, **figures}
        write_text(self.path, json.dumps(self.entries, indent=1) + "\n")
