"""A newcomer's path: the wheel, a fresh environment, an empty folder, the README's own lines."""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://example.org/serving/kvsim"
README = (ROOT / "README.md").read_text()
FIRST = (ROOT / "docs" / "first-scenario.md").read_text()
SOURCES = (
    *("kvsim", "evidence", "workloads", "calibration", "build_backend"),
    *("pyproject.toml", "setup.py", "mypyc.ini", "README.md", "LICENSE"),
    *("MANIFEST.in", "CHANGELOG.md", "CONTRIBUTING.md"),
)
# Where this environment has its packages: `make installed` adds those of another one.
SITES = [Path(each) for each in sys.path if each.endswith("site-packages")]


def blocks(language: str) -> list[str]:
    """Of the README, then of the page that continues from there."""
    return re.findall(rf"```{language}\n(.*?)```", README + FIRST, flags=re.DOTALL)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: what lies in an old build folder must not get in."""
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("building the wheel takes setuptools 77 or newer")
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    # What is compiled has tests of its own; a release names the project's address.
    plain = os.environ | {"KVSIM_COMPILE": "0", "KVSIM_REPOSITORY": REPOSITORY}
    subprocess.run([sys.executable, *command, "--wheel-dir", out, source], check=True, env=plain)
    (found,) = out.glob("kvsim-*.whl")
    return found


@pytest.fixture(scope="session")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel alone; its dependencies are the ones tested with."""
    place = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, *install],
        check=True, cwd=place, env=clean(),
    )  # fmt: skip
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(map(str, SITES)) + "\n")
    return place


def clean() -> dict[str, str]:
    """The environment without what would let this checkout in, or insist on a compiled form: the
    wheel here is the plain one.
    """
    left_out = ("PYTHONPATH", "KVSIM_COMPILED")
    return {key: value for key, value in os.environ.items() if key not in left_out}


def shell(line: str, folder: Path, fresh: Path) -> "subprocess.CompletedProcess[str]":
    path = f"{fresh / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False,
        env=clean() | {"PATH": path, "COLUMNS": "120"},
    )  # fmt: skip


def test_the_wheel_runs_chat_in_an_empty_folder(fresh: Path, tmp_path: Path) -> None:
    where = shell("python -c 'import kvsim; print(kvsim.__file__)'", tmp_path, fresh)
    assert str(fresh) in where.stdout
    done = shell("kvsim run chat --json --set workload.num_requests=40", tmp_path, fresh)
    assert done.returncode == 0, done.stderr
    assert [run["allocator"] for run in json.loads(done.stdout)["runs"]]
    assert not list(tmp_path.iterdir())


def test_uvx_runs_the_wheel_without_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    places = [*(site.parents[2] / "bin" for site in SITES), os.environ["PATH"]]
    uvx = shutil.which("uvx", path=os.pathsep.join(map(str, places)))
    if uvx is None:
        pytest.skip("uv is not installed")
    words = ["--python", sys.executable, "--from", str(wheel), "kvsim"]
    done = subprocess.run(
        [uvx, *words, "memory", "llama-3.1-8b", "--device", "h100", "--json"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env=clean() | {"UV_CACHE_DIR": str(tmp_path / "uv")},
    )  # fmt: skip
    if "Failed to fetch" in done.stderr or "error sending request" in done.stderr:
        pytest.skip(f"uv reaches no index: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


@pytest.mark.parametrize("name", ["paper", "cache"])
def test_the_evidence_is_no_part_of_the_wheel_and_says_so(
    fresh: Path, tmp_path: Path, name: str
) -> None:
    assert shell("python -c 'import evidence'", tmp_path, fresh).returncode == 1
    assert "checkout" in shell(f"kvsim validate {name} --help", tmp_path, fresh).stdout
    done = shell(f"kvsim validate {name} --seed 3", tmp_path, fresh)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"in a checkout of kvsim run: python -m kvsim validate {name}" in done.stderr


def test_all_recipes_and_calibrations_are_in_the_wheel(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [path for name in ("workloads", "calibration") for path in (ROOT / name).rglob("*.*")]
    wanted = [path for path in files if path.suffix in (".toml", ".json", ".npz")]
    assert len(wanted) > 30
    for path in wanted:
        assert f"kvsim/shipped/{path.relative_to(ROOT).as_posix()}" in held


def test_the_index_would_take_the_wheel(wheel: Path) -> None:
    pytest.importorskip("twine", reason="twine is not installed")
    command = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_index_shows_links_that_lead_somewhere(wheel: Path) -> None:
    """Each to a file of the tagged release; pictures to the file itself."""
    with zipfile.ZipFile(wheel) as held:
        (place,) = (name for name in held.namelist() if name.endswith("METADATA"))
        message = email.message_from_bytes(held.read(place))
    page = message.get_payload(decode=True).decode()
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)#]+)", page)
    source = "https://github.com/heyram74/nebius_sopertors_inferencex_benchmark"  # of the log shown
    links = [(picture, target) for picture, target in links if target != source]
    assert len(links) > 20
    for picture, target in links:
        root = f"{REPOSITORY}/{'raw' if picture else 'blob'}/v{message['Version']}/"
        assert target.startswith(root)
        assert (ROOT / target.removeprefix(root)).exists(), target
    urls = dict(each.split(", ") for each in message.get_all("Project-URL", []))
    assert urls["Repository"] == REPOSITORY
    assert len(urls) == 4


def test_an_address_that_is_none_ends_the_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "build_backend")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("KVSIM_REPOSITORY", "kvsim")
    with pytest.raises(SystemExit, match="https://host/owner/name"):
        import_module("kvsim_index").shown("1.0")


def test_an_installation_in_place_has_the_metadata_of_the_wheel(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The build backend writes the one itself, and setuptools the other."""
    monkeypatch.syspath_prepend(ROOT / "build_backend")
    monkeypatch.chdir(ROOT)
    kvsim_editable = import_module("kvsim_editable")
    named: list[dict[str, Any]] = []
    in_place = tmp_path / kvsim_editable.write_wheel(str(tmp_path))
    for path in (wheel, in_place):
        with zipfile.ZipFile(path) as held:
            (place,) = (name for name in held.namelist() if name.endswith("METADATA"))
            message = email.message_from_bytes(held.read(place))
            scripts = held.read(place.replace("METADATA", "entry_points.txt"))
            rows = held.read(place.replace("METADATA", "RECORD")).decode().split()
        assert {row.split(",")[0] for row in rows} == set(held.namelist())
        one = ("Name", "Version", "Summary", "License-Expression", "Requires-Python")
        named.append({key: message[key] for key in one} | {"scripts": scripts.split()})
        wanted = map(Requirement, message.get_all("Requires-Dist", []))
        named[-1]["extras"] = sorted(message.get_all("Provides-Extra", []))
        named[-1]["needs"] = sorted(f"{each.marker or ''!s} {each}" for each in wanted)
    assert named[0] == named[1]
    assert zipfile.ZipFile(in_place).read("kvsim.pth").decode() == f"{ROOT}\n"


@pytest.mark.parametrize("form", ["zip", "folder"])
def test_the_wheel_runs_where_nothing_is_installed(form: str, wheel: Path, tmp_path: Path) -> None:
    """As a zip file on the path, and as the folder that `pip install --target` makes."""
    place = wheel
    if form == "folder":
        place = tmp_path / "target"
        shutil.unpack_archive(wheel, place, "zip")
    scenario = ["chat", "--set", "workload.num_requests=40", "--out", str(tmp_path / "out")]
    for command in (["run", *scenario], ["recipes"], ["devices"]):
        done = subprocess.run(
            [sys.executable, "-m", "kvsim", *command],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env=clean() | {"PYTHONPATH": str(place), "KVSIM_COMPILED": "0"},
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "out" / "report.html").exists()


def test_readme_commands_run_up_to_an_own_trace(fresh: Path, tmp_path: Path) -> None:
    made, install, first, own = blocks("bash")[:4]
    assert [line.split("#")[0].strip() for line in made.splitlines()] == ["make demo", "make test"]
    lines = install.splitlines()
    assert [line.split("#")[0].strip() for line in lines[:3]] == [
        "python3 -m venv .venv",
        ". .venv/bin/activate",
        "pip install '.[report]'",
    ]
    (scenario,) = blocks("toml")
    (tmp_path / "first.toml").write_text(scenario)
    told = []
    for line in [*lines[3:], *first.splitlines(), *own.splitlines()]:
        done = shell(line, tmp_path, fresh)
        assert done.returncode == 0, (line, done.stderr)
        told.append(done.stdout)
    assert 1_000_000 < (tmp_path / "out" / "chat" / "report.html").stat().st_size < 2_000_000
    assert "same 500 requests" in " ".join(told[1].split())
    assert "same 2 requests" in " ".join(told[-1].split())


def test_cookbook_commands_and_options_run(fresh: Path, tmp_path: Path) -> None:
    """Each whole command, and each option of one; runs with fewer requests."""
    rows = FIRST.partition("## Cookbook")[2].partition("\n\n")[2].partition("\n\n")[0]
    cells = [row.split(" | ", 1)[1] for row in rows.splitlines()[2:]]
    told = [part for cell in cells for part in re.findall(r"`([^`]+)`", cell)]
    assert len(told) > 12
    for line in told:
        if line.startswith("--set workload.rate_scale"):
            continue  # of a trace
        if line.startswith("--"):
            line = f"kvsim run mine.toml {line}"
        if not line.startswith("kvsim"):
            continue  # a key
        if " run " in line:
            line = line.replace(" run ", " run --set workload.num_requests=30 ", 1)
        if line.endswith("compare out/a out/b"):
            for name, seed in (("a", 1), ("b", 2)):
                made = f"kvsim run mine.toml --set workload.num_requests=30 --set seed={seed}"
                assert not shell(f"{made} --out out/{name}", tmp_path, fresh).returncode
        if line in ("kvsim sweep", "kvsim capacity", "kvsim advise", "kvsim doctor"):
            line += " --help"
        if "out/chat" in line:
            made = "kvsim run chat --set workload.num_requests=30 --out out/chat"
            assert not shell(made, tmp_path, fresh).returncode
        done = shell(line, tmp_path, fresh)
        assert done.returncode == 0, (line, done.stderr)


def test_first_scenario_is_limited_by_memory(fresh: Path, tmp_path: Path) -> None:
    (scenario,) = blocks("toml")
    (tmp_path / "first.toml").write_text(scenario)
    runs = json.loads(shell("kvsim run first.toml --json", tmp_path, fresh).stdout)["runs"]
    largest, doubling, paged = (run["running_mean"] for run in runs)
    assert [round(mean) for mean in (largest, doubling, paged)] == [3, 35, 40]
    waits = [run["ttft_s"]["p50"] for run in runs]
    assert waits[0] == pytest.approx(16 * 60, rel=0.05)
    assert waits[1] == pytest.approx(16, rel=0.05)
    assert waits[2] == pytest.approx(0.11, rel=0.05)
    assert runs[2]["memory"]["capacity_tokens"] == 26_783
