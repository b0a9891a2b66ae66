"""The walk-through of CONTRIBUTING for newcomers works as written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the walk-through's allocator, as a package that is installed."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    folder = tmp_path_factory.mktemp("site")
    (folder / "my_package.py").write_text(code)
    info = folder / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kvsim.allocator]\nslabs = my_package:Slabs\n")
    return folder


def run(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(package), "KVSIM_WHOLE": "1"}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_plugin_allocator_passes_the_contract_tests(package: Path) -> None:
    done = run(package, "pytest", "-q", "-p", "no:cacheprovider", "tests/contracts", "-k", "slabs")
    assert done.returncode == 0, done.stdout[-2000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 14


def test_plugin_allocator_runs_by_kind_and_its_errors_name_its_options(package: Path) -> None:
    done = run(package, "kvsim.cli", "run", "chat", "--set", 'allocator=[{kind="slabs"}]', "--json")
    assert done.returncode == 0, done.stderr
    assert '"allocator": "slabs"' in done.stdout
    wrong = run(package, "kvsim.cli", "run", "chat", "--set", 'allocator=[{kind="slabs",slab=1}]')
    assert wrong.returncode == 2
    assert "slab_tokens" in wrong.stderr


def test_plugin_allocator_kind_is_unknown_without_its_package() -> None:
    done = run(Path(), "kvsim.cli", "run", "chat", "--set", 'allocator=[{kind="slabs"}]')
    assert done.returncode == 2
    assert "unknown allocator" in done.stderr


def test_every_target_that_the_makefile_lists_has_commands() -> None:
    text = (ROOT / "Makefile").read_text()
    listed = set(re.findall(r"^# make (\w+)", text, re.MULTILINE))
    with_commands = set(re.findall(r"^(\w+):.*\n\t", text, re.MULTILINE))
    assert listed
    assert listed <= with_commands
