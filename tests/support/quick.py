"""`make quick`: lint and tests of what was touched, and a chosen few of those that hold everything.

Touched is what git says of the working tree and of the commits since main. A file of kvsim is
tested by the folder of tests/ that mirrors its own, or the nearest above it; a test file by itself.
What is marked slow is left to `make test`.
"""

import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.pairs import kind_of

ROOT = Path(__file__).parents[2]
WHOLE = (
    "tests/test_walls.py",
    "tests/test_docs.py::test_generated_scenario_reference_is_current",
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
    """Files that differ from the last common commit with main, and untracked files."""
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


def few(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Split the collected tests: those that `make quick` runs, and those left to `make test`."""
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    places: Counter[str] = Counter()
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for item in items:
        name = item.nodeid.partition("[")[0]
        case = item.callspec.params if hasattr(item, "callspec") else {}
        kinds = {kind_of(each) for each in case.values() if isinstance(each, dict)}
        shows_new = not kinds <= seen[name]
        if not name.startswith(REDUCED) or chosen(name, case, places[name], shows_new):
            kept.append(item)
        else:
            left.append(item)
        places[name] += 1
        seen[name] |= kinds
    return kept, left


def sixth(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Split the collected tests: those to run, with the first and every sixth case of each test of
    recorded schedules, and the rest.
    """
    parts: tuple[list[pytest.Item], list[pytest.Item]] = ([], [])
    places: Counter[str] = Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        parts[name.startswith(SCHEDULES) and places[name] % EVERY_SCHEDULE > 0].append(item)
        places[name] += 1
    return parts


def chosen(name: str, parameters: dict[str, Any], place: int, shows_new: bool) -> bool:
    """Whether `make quick` runs a case of a test in REDUCED. name: file and function. parameters:
    those of the case. place: index of the case in its function. shows_new: its allocator or
    scheduler is the first of its kind.
    """
    file, _, function = name.rpartition("/")[2].partition("::")
    match file, function:
        case "test_leaps.py", "test_runs_of_k_steps_equal_single_steps":
            return shows_new
        case "test_ledger_events.py", _:
            return shows_new
        case "test_victims.py", "test_victim_rules_are_pure_and_choose_running_sequences":
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
