"""`make quick`: lint and tests of what was touched, and a chosen few of those that hold everything.

Touched is what git says of the working tree and of the commits since main. A file of kvsim is
tested by the folder of tests/ that mirrors its own, or the nearest above it; a test file by itself.
What is marked slow is left to `make test`.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cases import ALLOCATOR_TABLES, SCHEDULERS

ROOT = Path(__file__).parents[2]
WHOLE = (
    "tests/test_walls.py",
    "tests/test_docs.py::test_the_reference_of_scenarios_is_current",
)
# Of these those that are `chosen`, even where they are touched.
REDUCED = ("tests/test_golden.py", "tests/contracts", "tests/evidence/schedule/test_schedules.py")
RECIPES = ("chat", "long-document-qa", "states-or-tokens", "vllm-or-sglang-thrash")
# Recorded schedules are numbered by what they show, so that every sixth shows a bit of everything.
SCHEDULES = "tests/evidence/schedule/"
EVERY_SCHEDULE = 6
PLACES = {"kvsim": "tests", "evidence": "tests/evidence", "workloads": "tests/workload"}


def git(*arguments: str) -> list[str]:
    """The lines that a git command prints; none where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def touched() -> list[Path]:
    """Files that differ from main's last common commit, and those that git does not know yet."""
    base = git("merge-base", "HEAD", "main") or git("merge-base", "HEAD", "origin/main") or ["HEAD"]
    names = git("diff", "--name-only", base[0]) + git("ls-files", "--others", "--exclude-standard")
    return [Path(name) for name in sorted(set(names)) if (ROOT / name).is_file()]


def tests_of(path: Path) -> Iterator[str]:
    """The test files that touch of a file asks for."""
    if path.parts[0] == "tests":
        if path.match("test_*.py"):
            yield path.as_posix()
        return
    if path.suffix == ".md":
        yield "tests/test_docs.py"
        return
    if path.parts[0] not in PLACES:
        return
    top = Path(PLACES[path.parts[0]])
    folder = top.joinpath(*path.parts[1:-1])
    while folder != top:
        found = sorted((ROOT / folder).glob("test_*.py"))
        if found:
            yield from (each.relative_to(ROOT).as_posix() for each in found)
            return
        folder = folder.parent


def _first_of_each_kind(tables: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    kinds: dict[str, dict[str, Any]] = {}
    for table in tables:
        kinds.setdefault(table["kind"], table)
    return list(kinds.values())


_ALLOCATORS, _SCHEDULERS = map(_first_of_each_kind, (ALLOCATOR_TABLES, SCHEDULERS))


def few(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Collected tests apart: what `make quick` runs, and what it leaves to `make test`."""
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    places: Counter[str] = Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        case = item.callspec.params if hasattr(item, "callspec") else {}
        if not name.startswith(REDUCED) or chosen(name, case, places[name]):
            kept.append(item)
        else:
            left.append(item)
        places[name] += 1
    return kept, left


def sixth(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Collected tests apart: of each test of recorded schedules every sixth case and the first, and
    all other tests; and what is left.
    """
    parts: tuple[list[pytest.Item], list[pytest.Item]] = ([], [])
    places: Counter[str] = Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        parts[name.startswith(SCHEDULES) and places[name] % EVERY_SCHEDULE > 0].append(item)
        places[name] += 1
    return parts


def chosen(name: str, parameters: dict[str, Any], place: int) -> bool:
    """Whether a test of REDUCED is among the few. name: its file and function. parameters: of this
    case. place: of the case among those of its function.
    """
    file, _, function = name.rpartition("/")[2].partition("::")
    allocator = parameters.get("allocator", _ALLOCATORS[0])
    scheduler = parameters.get("scheduler", _SCHEDULERS[0])
    match file, function:
        case "test_leaps.py", "test_runs_of_k_steps_equal_single_steps":
            # Each kind once, so also what was registered a minute ago: an allocator under the first
            # scheduler, a scheduler over the first allocator.
            return (allocator == _ALLOCATORS[0] and scheduler in _SCHEDULERS) or (
                scheduler == _SCHEDULERS[0] and allocator in _ALLOCATORS
            )
        case "test_ledger_events.py", _:
            return allocator in _ALLOCATORS
        case "test_victims.py", "test_a_rule_is_pure_and_chooses_among_those_that_run":
            return True
        case "test_golden.py", _:
            return parameters.get("name", RECIPES[0]) in RECIPES
        case "test_schedules.py", "test_schedule_is_equal_row_for_row":
            return place % EVERY_SCHEDULE == 0
    return False


def main() -> int:
    """The exit code of the first part that fails."""
    files = touched()
    python = [path.as_posix() for path in files if path.suffix == ".py"]
    rooms = dict.fromkeys(test for path in files for test in tests_of(path))
    print(f"{len(files)} files touched; beside the chosen few: {' '.join(rooms) or 'nothing'}")
    for arguments in (
        *((["ruff", "check", *python], ["ruff", "format", "--check", *python]) if python else ()),
        [
            "pytest",
            "-q",
            "-n",
            "2",
            "-m",
            "not slow",
            "--quick",
            *WHOLE,
            *REDUCED,
            *rooms,
            *sys.argv[1:],
        ],
    ):
        code = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
