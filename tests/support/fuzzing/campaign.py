"""Damaged files by the thousand: `python -m support.fuzzing.campaign --seconds 60`.

Every case has a name, target:number; a case that fails is kept beside the corpus and raised again
with `--only target --first number --cases 1`.
"""

import argparse
import contextlib
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from kvsim.plumbing.errors import InputError
from support.fuzzing.mutation import spoilt
from support.fuzzing.scenarios import check, scenario
from support.fuzzing.targets import TARGETS, Target

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"
MOST_SECONDS = 10  # of the processor, for one case
PATIENCE = 12  # times as long by the clock: a busy machine is no hang
MOST_MEMORY = 6 << 30
SCENARIOS = "scenarios"
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
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", action="append", help="a target; may be repeated")
    parser.add_argument("--keep", type=Path, help="a folder for the files that failed")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    names = arguments.only or [*TARGETS, SCENARIOS]
    share = arguments.seconds / len(names)
    failed = 0
    for name in names:
        try_one = _scenarios if name == SCENARIOS else _files(name)
        failed += _campaign(name, try_one, arguments, share)
    return 1 if failed else 0


def _files(name: str) -> Try:
    """Tries a numbered file in a folder."""
    target = TARGETS[name]

    def try_one(number: int, folder: Path) -> bool:
        if number == 0 or not any(folder.iterdir()):
            target.prepare(folder)
        return read(target, folder, case(name, number))

    return try_one


def _scenarios(number: int, folder: Path) -> bool:
    with at_most(12 * MOST_SECONDS):
        return check(scenario(Random(f"{SCENARIOS}:{number}")))


def _campaign(name: str, try_one: Try, arguments: argparse.Namespace, seconds: float) -> int:
    seen = dict[str, int]()
    taken = done = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        while arguments.cases is None or done < arguments.cases:
            if time.monotonic() - began > seconds:
                break
            number = arguments.first + done
            done += 1
            try:
                taken += try_one(number, Path(folder))
            except Exception as error:
                key = _place(error)
                seen[key] = seen.get(key, 0) + 1
                if seen[key] == 1:
                    _tell(name, number, error, arguments.keep)
    print(
        f"{name}: {done:,} cases, {taken:,} read, {done - taken - sum(seen.values()):,} refused,"
        f" {len(seen)} faults ({sum(seen.values()):,} cases)",
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
    sys.exit(main())
