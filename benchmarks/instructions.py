"""Instructions of a process, which hardly differ from run to run: by the processor's own counter
where perf may read it, else by valgrind, at some fifty times the time.
"""

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

PERF = ("perf", "stat", "-x,", "-e", "instructions:u", "-o", "{told}", "--")
VALGRIND = (
    *("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
    "--log-file={told}",
)


class ProcessError(Exception):
    """A process that did not end well; with the last line it wrote."""


@dataclass(frozen=True)
class Counter:
    """A tool that counts. words: before the command; pattern: of the count in what it tells.
    most_requests: of a case, as many as end within a minute; None: all.
    """

    name: str
    words: tuple[str, ...]
    pattern: str
    most_requests: int | None

    def count(self, command: list[str], settings: dict[str, str]) -> int:
        """The instructions of a process. settings: environment variables besides ours."""
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder, "told")
            words = [word.replace("{told}", str(told)) for word in self.words]
            done = subprocess.run(
                [*words, *command], env=os.environ | settings, capture_output=True, text=True
            )
            found = re.search(self.pattern, told.read_text()) if told.exists() else None
        if done.returncode or found is None:
            lines = done.stderr.strip().splitlines()
            raise ProcessError(lines[-1] if lines else f"{self.name} told no count")
        return int(found[1].replace(",", ""))


COUNTERS = (
    Counter("perf", PERF, r"(?m)^(\d+),", None),
    Counter("valgrind", VALGRIND, r"I +refs: +([\d,]+)", 2000),
)


def find_counter() -> Counter | None:
    """The first tool that counts on this machine; None: there is none."""
    for counter in COUNTERS:
        if shutil.which(counter.words[0]) is not None:
            try:
                counter.count(["true"], {})
            except ProcessError:
                continue
            return counter
    return None
