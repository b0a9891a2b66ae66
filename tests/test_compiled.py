"""Compiled modules compute the same as the sources, and are ignored where they do not apply."""

import ast
import contextlib
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from kvsim import compiled

ROOT = Path(__file__).parents[1]
# Random scenarios that both forms run, each some CPU seconds; `make soak` runs more.
SCENARIOS = 400 if os.environ.get("KVSIM_WHOLE") else 40
FILES = sorted((ROOT / "kvsim").rglob("*.py"))
DIGESTS = ROOT / "kvsim" / "compiled.sha256"
LIST = [
    line.removeprefix("!")
    for line in (ROOT / "kvsim" / "compiled.txt").read_text().splitlines()
    if not line.startswith("#")
]
# One of each allocator and scheduler that is compiled, with requests enough to preempt.
CASES = {
    "paged": [],
    "prefixes": [
        "workload.prefixes="
        "[{count = 5, tokens = {kind = 'uniform', min_tokens = 16, max_tokens = 512}}]"
    ],
    "preempting": ["memory.kv_cache_tokens=16384"],
    "max-buffer": ["allocator.0.kind=max-buffer"],
    "doubling": ["allocator.0.kind=doubling", "allocator.0.placement=best-fit"],
    "windows": ["model.name=gemma-3-27b"],
    "swapping": ["memory.kv_cache_tokens=16384", "scheduler.preemption_mode=swap"],
    "asynchronous": ["scheduler.async_scheduling=true"],
    "radix": [
        "allocator.0.kind=radix",
        "scheduler={kind = 'sglang'}",
        "memory.kv_cache_tokens=40000",
    ],
    # Integers beyond 2**53, where compiled division would round twice.
    "three hours": ["workload.arrivals={kind = 'poisson', rate_per_s = 0.03}"],
    "single steps": ["max_steps=1", "workload.num_requests=60"],
}


def test_every_pattern_of_compiled_txt_matches_a_file() -> None:
    assert [pattern for pattern in LIST if not any(ROOT.glob(pattern))] == []


def test_edited_source_runs_instead_of_its_compiled_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(compiled.SWITCH, raising=False)
    monkeypatch.setattr(compiled, "library", lambda: "there")
    name = "kvsim/sequence.py"
    digest = sha256((ROOT / name).read_bytes()).hexdigest()
    digests = tmp_path / "compiled.sha256"
    digests.write_text(f"{digest}  {name}\n")
    assert compiled.counts(digests)
    for other in (f"{'0' * 64}  {name}\n", f"{digest}  kvsim/no_such_file.py\n"):
        digests.write_text(f"{digest}  {name}\n{other}")
        assert not compiled.counts(digests)
    digests.write_text(f"{digest}  {name}\n")
    monkeypatch.setenv(compiled.SWITCH, "0")
    assert not compiled.counts(digests)


def test_modules_compiled_for_another_python_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(compiled.SWITCH, raising=False)
    monkeypatch.setattr(compiled, "library", lambda: None)
    (tmp_path / "compiled.sha256").write_text("")
    assert not compiled.counts(tmp_path / "compiled.sha256")


def test_sources_are_importable_with_compiled_modules_present(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text("")
    (tmp_path / "part.so").write_text("")
    spec = compiled.Sources().find_spec("kvsim.part", [str(tmp_path)])
    assert spec is not None
    assert spec.origin == str(tmp_path / "part.py")
    assert compiled.Sources().find_spec("other.part", [str(tmp_path)]) is None


def test_requiring_compiled_modules_without_any_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(compiled.SWITCH, "1")
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)
    with pytest.raises(ImportError, match="nothing is compiled"):
        compiled.settle()


@pytest.mark.parametrize("case", CASES)
def test_compiled_and_interpreted_runs_write_the_same_bytes(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(compiled.SWITCH, raising=False)
    if not (DIGESTS.exists() and compiled.counts(DIGESTS)):
        pytest.skip("nothing is compiled, or its sources were edited since")
    written = []
    for switch in ("0", "1"):
        out = tmp_path / switch
        scenario = str(ROOT / "benchmarks" / "scenarios" / "sharegpt.toml")
        command = [sys.executable, "-m", "kvsim.cli", "run", scenario, "--no-page", "--out", out]
        for each in ("workload.num_requests=400", *CASES[case]):
            command += ["--set", each]
        environment = os.environ | {compiled.SWITCH: switch}
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment)
        files = {path.name: path.read_bytes() for path in out.iterdir()}
        files["summary.json"] = re.sub(rb'"wall_s": [^,}]+', b"", files["summary.json"])
        written.append(files)
    assert len(written[0]) > 2
    assert written[0] == written[1]


@pytest.mark.slow
def test_compiled_and_interpreted_runs_of_random_scenarios_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(compiled.SWITCH, raising=False)
    if not (DIGESTS.exists() and compiled.counts(DIGESTS)):
        pytest.skip("nothing is compiled, or its sources were edited since")
    command = [sys.executable, "-m", "support.both_forms", str(SCENARIOS)]
    written = []
    for switch in ("0", "1"):
        environment = os.environ | {compiled.SWITCH: switch}
        done = subprocess.run(
            command, cwd=ROOT / "tests", env=environment, capture_output=True, text=True, check=True
        )
        written.append(done.stdout.splitlines())
    assert len(written[0]) == SCENARIOS
    assert sum("refused" not in line for line in written[0]) > SCENARIOS // 4
    assert written[0] == written[1]


WINDOW = """
from kvsim.memory.ledger import Usage
from evidence.paper.window import WindowRecorder
recorder = WindowRecorder(100, 0, 1000)
recorder.interval(0, 2, 10, 0, Usage(used=40, idle=60), None, 3, 1, 7, ((0, 5),))
recorder.interval(20, 1, 10, 0, Usage(idle=100), None, 1, 0)
print(recorder.shares(), recorder.running_mean(), recorder.window_steps, recorder.saved_sum)
"""


def test_window_recorder_works_compiled_and_interpreted() -> None:
    compiled_too = os.environ.get(compiled.SWITCH) != "0" and compiled.counts(DIGESTS)
    for switch in ("0", "1") if compiled_too else ("0",):
        command = [sys.executable, "-c", WINDOW]
        environment = os.environ | {compiled.SWITCH: switch}
        done = subprocess.run(command, check=True, capture_output=True, env=environment, text=True)
        assert done.stdout.endswith(f"{7 / 3} 3 140\n")


def test_no_compiled_method_passes_star_arguments_to_its_base() -> None:
    """mypyc would pass the whole tuple as the first argument if the base method has defaults."""
    for name in sources():
        for call in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("super()."):
                assert not any(isinstance(each, ast.Starred) for each in call.args), name


def test_runtime_checkable_protocols_are_not_compiled() -> None:
    """mypyc makes a plain class of a protocol, which `runtime_checkable` refuses on import."""
    found = [name for name in sources() if "@runtime_checkable" in (ROOT / name).read_text()]
    assert found == []


def test_no_compiled_class_is_an_abc() -> None:
    """Compiled subclasses of ABC share one cache of `isinstance`, so an answer about one class is
    returned for another. `abstractmethod` alone informs mypy of what a subclass lacks.
    """
    for name in sources():
        assert not re.search(r"\b(ABC|ABCMeta)\b", (ROOT / name).read_text()), name


def test_compiled_classes_with_interpreted_subclasses_allow_them() -> None:
    """A default in the body of a compiled class is a field that compiled code reads. A default in
    the body of an interpreted subclass is never read.
    """
    compiled_files = set(sources())
    every = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in FILES}
    native = {
        node.name: node
        for name in compiled_files
        for node in every[name].body
        if isinstance(node, ast.ClassDef)
    }
    closed = {
        name
        for name, node in native.items()
        if not any(ast.unparse(line).startswith("mypyc_attr") for line in node.decorator_list)
    }
    assert len(closed) > 50
    for name in every.keys() - compiled_files:
        imported = names_from_compiled(every[name], compiled_files)
        for node in ast.walk(every[name]):
            if isinstance(node, ast.ClassDef):
                bases = imported & set(map(ast.unparse, node.bases)) & native.keys()
                assert not bases & closed, f"{name}: {node.name}"
                unseen = [defaults(node) & defaults(native[base]) for base in bases]
                assert not any(unseen), f"{name}: {node.name}: {unseen}"


def defaults(node: ast.ClassDef) -> set[str]:
    """Names of the fields with a default in the body of a class."""
    return {
        ast.unparse(target)
        for line in node.body
        if isinstance(line, ast.Assign | ast.AnnAssign)
        and line.value is not None
        and not (isinstance(line, ast.AnnAssign) and "ClassVar" in ast.unparse(line.annotation))
        for target in (line.targets if isinstance(line, ast.Assign) else [line.target])
    }


def names_from_compiled(tree: ast.Module, compiled_files: set[str]) -> set[str]:
    """Names that a file imports from compiled modules."""
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and f"{str(node.module).replace('.', '/')}.py" in compiled_files
        for alias in node.names
    }


def sources() -> list[str]:
    """Source files that setup.py compiles."""
    text = (ROOT / "setup.py").read_text().partition("\nclass BuildCompiled")[0]
    names: dict[str, Any] = {"__file__": str(ROOT / "setup.py")}
    with contextlib.chdir(ROOT):
        exec(text, names)
        found: list[str] = names["sources"]()
    return found
