"""`python -m evidence.session --out DIR`: run all stages of a GPU session that DIR does not contain
yet. `make gpu` runs it.

Each stage runs in a separate process: a fault of the device ends only this stage. After every stage
all files go into one archive. `python -m evidence.session.home` turns the archive into calibrations
and reports; if DIR is lost, a session resumes from the archive. `--plan short` takes a quarter of
an hour, `--plan full` 40 minutes. With `--device cpu` the same code runs on a CPU with tiny models,
where captured steps are simply run again.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.session.archive import Packed, pack, unpack
from evidence.session.plan import PLANS, SessionPlan
from evidence.session.stage import Journal, OutOfTime, Session, SessionStage
from evidence.session.stages import stages
from evidence.session.wheels import use_wheels
from kvsim.plumbing.errors import InputError

GRACE_S = 30.0  # for a stage to end by itself when its time is over


def main(arguments: list[str] | None = None) -> int:
    """Run the session; exit code 0 if every stage is done or was skipped for a reason, 1 if one
    failed.
    """
    parser = argparse.ArgumentParser(prog="python -m evidence.session", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the session's folder")
    parser.add_argument("--plan", choices=tuple(PLANS), default="full")
    parser.add_argument("--device", choices=tuple(PLANS["full"]), default="cuda")
    parser.add_argument("--minutes", type=float, help="of this call, at most; full: 40, short: 9")
    parser.add_argument("--stage", help="this one alone, in this process")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="the archive; DIR.tar.xz")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="of packages that are not here")
    given = parser.parse_args(arguments)
    plan: SessionPlan = PLANS[given.plan][given.device]
    minutes = plan.minutes if given.minutes is None else given.minutes
    end_s = time.monotonic() + 60 * minutes
    archive = given.pack or given.out.with_name(given.out.name + ".tar.xz")
    try:
        if not given.out.exists() and archive.exists() and not given.stage:
            unpack(archive, given.out)
        given.out.mkdir(parents=True, exist_ok=True)
        if given.wheels is not None:
            _import_from(use_wheels(given.wheels, given.out).resolve())
        if given.stage:
            return _run_one(plan, given.out, given.stage, end_s)
        # A machine that takes its command back says so first: what there is is packed then.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        return SessionRunner(plan, given.plan, given.device, given.out, archive, end_s).run()
    except InputError as error:  # a journal that is none
        _say(f"error: {error}")
        return 2


@dataclass(slots=True)
class SessionRunner:
    """Runs the stages one after the other, each in a separate process."""

    plan: SessionPlan
    name: str
    device: str
    out: Path
    archive: Path
    end_s: float

    def run(self) -> int:
        """Run the stages and print the journal as it grows; exit code as of `main`."""
        begin_s = time.monotonic()
        try:
            entries = self._run_all()
        finally:
            packed = pack(self.out, self.archive)
        names = [stage.name for stage in stages(self.plan)]
        count = {
            status: sum(entries[name]["status"] == status for name in names)
            for status in ("done", "skipped", "failed")
        }
        if count["skipped"] or count["failed"]:
            _say("run it again on the same folder: it goes on with what is not done")
        words = ", ".join(f"{number} {status}" for status, number in count.items())
        minutes = (time.monotonic() - begin_s) / 60
        _say(f"{self.name} plan: {words}; {minutes:.1f} minutes; {_packed_words(packed)}")
        _say(f"archive: {self.archive}")
        return 1 if count["failed"] else 0

    def _run_all(self) -> dict[str, dict[str, Any]]:
        """Try all stages; returns the journal's entries."""
        for stage in stages(self.plan):
            journal = Journal.open(self.out)
            if journal.done(stage.name):
                _say(f"{stage.name}: done before")
                continue
            why = self._obstacle(stage, journal)
            if why:
                journal.note(stage.name, "skipped", why=why)
            else:
                self._start(stage, journal)
            _say(_journal_line(stage.name, Journal.open(self.out).entries[stage.name]))
            pack(self.out, self.archive)
        return Journal.open(self.out).entries

    def _obstacle(self, stage: SessionStage, journal: Journal) -> str | None:
        """The reason why the stage cannot run now; None if it can."""
        missing = stage.missing()
        if missing:
            return f"needs {', '.join(missing)}, not installed here"
        unmet = [name for name in stage.after if not journal.done(name)]
        if unmet:
            return f"comes after {', '.join(unmet)}"
        left = (self.end_s - time.monotonic()) / 60
        # A measurement keeps what it has; any other stage would be begun in vain.
        if left < (0.2 if stage.name.startswith("measure") else 0.5 * stage.minutes):
            return f"{max(left, 0):.1f} minutes left, it takes about {stage.minutes:g}"
        return None

    def _start(self, stage: SessionStage, journal: Journal) -> None:
        left_s = self.end_s - time.monotonic()
        if stage.most_minutes is not None:
            left_s = min(left_s, 60 * stage.most_minutes)
        command = [sys.executable, "-m", "evidence.session", "--out", str(self.out)]
        command += ["--plan", self.name, "--device", self.device]
        command += ["--stage", stage.name, "--minutes", str(left_s / 60)]
        try:
            done = subprocess.run(command, check=False, timeout=left_s + GRACE_S)  # noqa: S603
        except subprocess.TimeoutExpired:
            journal.note(stage.name, "skipped", why="its time was over; what it has is kept")
            return
        if stage.name not in Journal.open(self.out).entries:
            journal.note(stage.name, "failed", why=f"its process ended with {done.returncode}")


def _run_one(plan: SessionPlan, out: Path, name: str, end_s: float) -> int:
    """Run one stage in this process, and write its outcome to the journal."""
    stage = next((each for each in stages(plan) if each.name == name), None)
    if stage is None:
        names = ", ".join(each.name for each in stages(plan))
        _say(f"error: --stage: no such stage; got {name}; one of: {names}")
        return 2
    journal, begin_s = Journal.open(out), time.monotonic()
    journal.entries.pop(name, None)

    def check_time() -> None:
        if time.monotonic() > end_s:
            raise OutOfTime

    try:
        figures = stage.run(Session(plan, out, check_time))
    except OutOfTime:
        journal.note(name, "skipped", why="its time was over; what it has is kept")
        return 0
    except InputError as error:
        journal.note(name, "failed", why=str(error))
        return 1
    except Exception as error:  # whatever it was, the other stages may go well
        traceback.print_exc()
        journal.note(name, "failed", why=f"{type(error).__name__}: {error}")
        return 1
    journal.note(name, "done", seconds=round(time.monotonic() - begin_s, 1), **figures)
    return 0


def _journal_line(name: str, entry: dict[str, object]) -> str:
    rest = {key: value for key, value in entry.items() if key != "status"}
    return f"{name}: {entry['status']} {json.dumps(rest)}"


def _packed_words(packed: Packed) -> str:
    words = f"{packed.files} files in {packed.num_bytes / 2**20:.2f} MiB"
    return words + (f", without {', '.join(packed.left_out)}" if packed.left_out else "")


def _import_from(site: Path) -> None:
    """Make the packages of this folder importable, here and in the stages' processes."""
    sys.path.append(str(site))
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [known, str(site)]))


def _say(words: str) -> None:
    print(words, flush=True)  # noqa: T201 - this is a command


if __name__ == "__main__":
    sys.exit(main())
