"""Damaged files by the thousand: `python -m support.fuzzing.campaign --seconds 60`.

Every case has a name, target:number. A failing case is stored (`--keep`), and repeated with `--only
target --first number --cases 1`. The counts of each target are stored with the failures, and the
next campaign in that folder continues after the last case. The cheapest targets come first.
"""

import argparse
import contextlib
import json
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.writing import write_text
from support.fuzzing.laws import check
from support.fuzzing.mutation import spoilt
from support.fuzzing.scenarios import scenario
from support.fuzzing.targets import TARGETS, Target

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"
MOST_SECONDS = 10  # of the processor, for one case
PATIENCE = 12  # times as long by the clock: a busy machine is no hang
MOST_MEMORY = 6 << 30
SCENARIOS = "scenarios"
MEMORY = Path("/dev/shm")
FASTEST = MEMORY if MEMORY.is_dir() else None  # where files cost no disk
Try = Callable[[int, Path], bool]


class HangError(Exception):
    """A case took longer than MOST_SECONDS."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise HangError if the body takes more of the processor, or waits for ever."""

    def stop(*_: object) -> None:
        raise HangError(f"longer than {seconds} s")

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def case(name: str, number: int) -> bytes:
    """The file of one case."""
    random = Random(f"{name}:{number}")
    target = TARGETS[name]
    return spoilt(random, random.choice(target.seeds()), target.kind)


def read(target: Target, folder: Path, content: bytes) -> bool:
    """Whether the target takes the content; any fault but InputError is raised."""
    path = folder / target.name
    path.write_bytes(content)
    with at_most(MOST_SECONDS):
        try:
            target.read(path)
        except InputError as error:
            said = str(error)
        else:
            return True
    if "\n" in said or len(said) > 2500:
        raise AssertionError(f"no line that anybody reads: {said}")
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--cases", type=int, default=None, help="of each target")
    parser.add_argument("--first", type=int, default=None, help="number of the first case")
    parser.add_argument("--up-to", type=int, default=None, help="cases of each target in all")
    parser.add_argument("--only", action="append", help="a target; may be repeated")
    parser.add_argument("--keep", type=Path, help="a folder for files that failed, and counts")
    arguments = parser.parse_args()
    names = arguments.only or [*TARGETS, SCENARIOS]
    tries = {name: _scenarios if name == SCENARIOS else _files(name) for name in names}
    counts = Counts(arguments.keep)
    if arguments.up_to is not None:
        names = sorted(names, key=lambda name: _cost(tries[name]))
    ends = time.monotonic() + arguments.seconds
    failed = 0
    for place, name in enumerate(names):
        now = time.monotonic()
        left = ends - now if arguments.up_to is not None else (ends - now) / (len(names) - place)
        failed += _campaign(name, tries[name], arguments, counts, now + left)
    return 1 if failed else 0


class Counts:
    """What campaigns that kept in one folder have done so far, target by target."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "counts.json"
        self._of: dict[str, dict[str, int]] = {}
        if self._path is not None and self._path.exists():
            self._of = json.loads(self._path.read_text())

    def of(self, name: str) -> dict[str, int]:
        """cases, read, refused and faults of a target; written on to."""
        return self._of.setdefault(name, {"cases": 0, "read": 0, "refused": 0, "faults": 0})

    def keep(self) -> None:
        """Write them down, if they are kept at all."""
        if self._path is not None:
            write_text(self._path, json.dumps(self._of, indent=1) + "\n")


def _cost(try_one: Try) -> float:
    """Seconds of the processor that a case takes, roughly."""
    with tempfile.TemporaryDirectory(dir=FASTEST) as folder:
        began = time.process_time()
        for number in range(40):
            if number == 10:  # what is imported or made once is no cost of a case
                began = time.process_time()
            with contextlib.suppress(Exception):
                try_one(number, Path(folder))
    return time.process_time() - began


def _files(name: str) -> Try:
    """Tries a numbered file in a folder."""
    target = TARGETS[name]

    def try_one(number: int, folder: Path) -> bool:
        if not any(folder.iterdir()):
            target.prepare(folder)
        return read(target, folder, case(name, number))

    return try_one


def _scenarios(number: int, folder: Path) -> bool:
    return check(scenario(Random(f"{SCENARIOS}:{number}")), at_most)


def _campaign(
    name: str, try_one: Try, arguments: argparse.Namespace, counts: Counts, until: float
) -> int:
    """Cases of one target until they are done or the clock says `until`; kinds of faults seen."""
    seen = dict[str, int]()
    told = counts.of(name)
    began, before = time.process_time(), told["cases"]
    first = arguments.first if arguments.first is not None else before
    most = arguments.cases if arguments.cases is not None else sys.maxsize
    if arguments.up_to is not None:
        most = min(most, arguments.up_to - before)
    done = 0
    with tempfile.TemporaryDirectory(dir=FASTEST) as folder:
        while done < most and time.monotonic() < until:
            number = first + done
            done += 1
            told["cases"] += 1
            try:
                told["read" if try_one(number, Path(folder)) else "refused"] += 1
            except Exception as error:
                told["faults"] += 1
                key = _place(error)
                seen[key] = seen.get(key, 0) + 1
                if seen[key] == 1:
                    _tell(name, number, error, arguments.keep)
            if done % 5000 == 0:
                counts.keep()
    counts.keep()
    seconds = time.process_time() - began
    print(
        f"{name}: {done:,} cases in {seconds:.0f} s of the processor; in all {told['cases']:,}:"
        f" {told['read']:,} read, {told['refused']:,} refused, {told['faults']:,} faults",
        flush=True,
    )
    return len(seen)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/kvsim/" in frame.filename] or frames
    return f"{type(error).__name__} {ours[-1].filename}:{ours[-1].lineno}"


def _tell(name: str, number: int, error: Exception, keep: Path | None) -> None:
    print(f"--- {name}:{number} {_place(error)}: {str(error)[:200]}", flush=True)
    if keep is not None and name in TARGETS:
        (keep / name).mkdir(parents=True, exist_ok=True)
        (keep / name / f"{number}").write_bytes(case(name, number))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    warnings.simplefilter("error")
    sys.exit(main())
