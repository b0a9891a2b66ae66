"""Mutants: one operator, constant or condition of PLACES changed at a time, and the tests that
should notice: `make mutants`. What lives is told with its place; docs/invariants.md says of each
known one why it changes nothing.
"""

import argparse
import ast
import copy
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PLACES = ("kvsim/memory", "kvsim/engine", "kvsim/results", "kvsim/fleet")
# Quick ones first: most mutants die in the first seconds.
TESTS = (
    "tests/evidence/schedule",
    "tests/memory",
    "tests/engine",
    "tests/contracts",
    "tests/results",
    "tests/fleet",
)
COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult}


class Mutant(NamedTuple):
    """A change to one node. number: of the node in the order of ast.walk."""

    path: Path
    line: int
    number: int
    what: str


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    tree = ast.parse(path.read_text())
    skipped = {id(inner) for node in _unseen(tree) for inner in ast.walk(node)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        change = _change(node)
        if change is not None:
            yield Mutant(path, getattr(node, "lineno", 0), number, change[0])


def mutated(mutant: Mutant) -> str:
    """The source of the file with the change."""
    tree = ast.parse(mutant.path.read_text())
    node = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.number)
    found = _change(node)
    assert found is not None
    found[1]()
    return ast.unparse(ast.fix_missing_locations(tree))


def _unseen(tree: ast.AST) -> Iterator[ast.AST]:
    """What no test can see: types, words of errors, checks that must never fail."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.FunctionDef):
            if node.name in ("check", "__repr__", "__str__"):
                yield node
            yield from (part for part in (node.returns, *node.args.args) if part is not None)
        elif isinstance(node, ast.AnnAssign):
            yield node.annotation


def _change(node: ast.AST) -> tuple[str, Callable[[], None]] | None:
    """What can be changed about a node, in words, and the change."""

    def put(field: str, value: object) -> Callable[[], None]:
        return lambda: setattr(node, field, value)

    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        after = COMPARED[type(node.ops[0])]()
        return f"{_name(node.ops[0])} to {_name(after)}", put("ops", [after, *node.ops[1:]])
    if isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        changed = COMPUTED[type(node.op)]()
        return f"{_name(node.op)} to {_name(changed)}", put("op", changed)
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return f"{_name(node.op)} to {_name(other)}", put("op", other)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = copy.copy(node.operand)
        return "not dropped", lambda: (
            setattr(node, "op", ast.Not()),
            setattr(node, "operand", ast.UnaryOp(ast.Not(), inner)),
        )[0]
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        return f"{node.value} to {not node.value}", put("value", not node.value)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return f"{node.value} to {node.value + 1}", put("value", node.value + 1)
    return None


def _name(operator: ast.AST) -> str:
    return type(operator).__name__


def fate(mutant: Mutant, tests: tuple[str, ...], seconds: float) -> str:
    """LIVES where all tests pass with the change, dies where one fails, hangs where its own tests
    or the others take more than `seconds` of a processor, which is noticed too.
    """
    with tempfile.TemporaryDirectory() as name:
        package = Path(name) / "kvsim"
        shutil.copytree(ROOT / "kvsim", package)
        for folder in ("workloads", "calibration", "pyproject.toml", "docs", "README.md"):
            os.symlink(ROOT / folder, Path(name) / folder)
        (Path(name) / mutant.path.relative_to(ROOT)).write_text(mutated(mutant))
        for stage in filter(None, (own_tests(mutant.path), tests)):
            told = _try(stage, name, seconds)
            if told != "LIVES":
                return told
    return "LIVES"


def own_tests(path: Path) -> tuple[str, ...]:
    """The tests of the room that a file stands in: they are few, and notice most."""
    place = path.relative_to(ROOT / "kvsim").parent
    while place.parts:
        if (ROOT / "tests" / place).is_dir():
            return (str(Path("tests") / place),)
        place = place.parent
    return ()


def _try(tests: tuple[str, ...], package: str, seconds: float) -> str:
    """What becomes of the package in this folder under the tests, see `fate`."""
    # -P: the mutant is imported, not what lies in the current folder.
    command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    # Of a processor, for a busy machine is no hang; a test that waits has an end of its own.
    limit = (int(seconds), int(seconds) + 1)
    done = subprocess.run(
        [*command, *tests], cwd=ROOT, capture_output=True, check=False,
        env=os.environ | {"PYTHONPATH": f"{package}:{ROOT / 'tests'}"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),
    )  # fmt: skip
    return {0: "LIVES", -signal.SIGXCPU: "hangs"}.get(done.returncode, "dies")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=30, help="how many, of all there are")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="paths that hold this alone")
    parser.add_argument("--seconds", type=float, default=900, help="of a processor, a stage")
    parser.add_argument("tests", nargs="*", default=TESTS)
    given = parser.parse_args()
    files = sorted(path for place in PLACES for path in (ROOT / place).rglob("*.py"))
    if given.only:
        files = [path for path in files if any(part in str(path) for part in given.only)]
    every = [mutant for path in files for mutant in mutants(path)]
    chosen = Random(given.seed).sample(every, min(given.sample, len(every)))
    alive = []
    for mutant in chosen:
        told = fate(mutant, tuple(given.tests), given.seconds)
        alive += [mutant] if told == "LIVES" else []
        where = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
        print(f"{told:5} {where} {mutant.what}", flush=True)
    print(f"{len(chosen)} of {len(every):,} mutants tried, {len(alive)} lived")
    return 0


if __name__ == "__main__":
    sys.exit(main())
