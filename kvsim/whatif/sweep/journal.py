"""A sweep's journal on disk: one line of JSON per finished point, only appended to.

After a sweep ends, even if killed, the file has whole lines and at most one torn line, which the
next sweep cuts off. Only one process writes at a time; a lock on the file excludes others.
"""

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import loads
from kvsim.whatif.task import TaskOutcome

JOURNAL = "journal.jsonl"


class SweepJournal:
    """The open journal of a folder. outcomes: those read from the file and those added since, by
    key.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        self.outcomes: dict[str, TaskOutcome] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b", buffering=0)  # nothing is kept back
        except OSError as error:
            raise _unwritable(self.path, error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise InputError(
                "another sweep is writing here",
                where=str(folder),
                remedy="wait for it, or give another --out",
            ) from None
        try:
            self._read()
        except InputError:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, outcome: TaskOutcome) -> None:
        """Append one outcome and flush it to disk. If the disk is full, cut off the partial line
        and raise InputError.
        """
        line = json.dumps(outcome._asdict(), ensure_ascii=False, separators=(",", ":"))
        end = self._file.seek(0, os.SEEK_END)
        try:
            rest = line.encode() + b"\n"
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(end)
            raise _unwritable(self.path, error) from None
        self.outcomes[outcome.key] = outcome

    def _read(self) -> None:
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file.read().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                break  # torn by whatever ended the last sweep
            try:
                fields = loads(line)
                outcome = TaskOutcome(**{**fields, "rows": tuple(fields["rows"])})
                if not isinstance(outcome.key, str) or not all(
                    isinstance(row, dict) for row in outcome.rows
                ):
                    raise TypeError
            except (ValueError, TypeError, KeyError):
                raise InputError(
                    "not a line of a sweep's journal",
                    where=f"{self.path}:{number}",
                    remedy="give another --out",
                ) from None
            self.outcomes[outcome.key] = outcome
            whole += len(line)
        if whole < self._file.seek(0, os.SEEK_END):
            self._file.truncate(whole)


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        "cannot write",
        where=str(path),
        value=error.strerror or error,
        remedy="free the disk or give another --out; what was finished is kept, and the same "
        "command goes on from there",
    )
