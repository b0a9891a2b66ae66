"""The documentation is executed: its examples work, and its lists are complete."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands_page import page
from support.pairs import is_whole
from typer.testing import CliRunner

import kvsim
from evidence.schedule.engines import parse_case
from evidence.schedule.replay import simulate_rows
from kvsim.cli import app
from kvsim.commands.reference import markdown

ROOT = Path(__file__).parents[1]
FIRST = (ROOT / "docs" / "first-scenario.md").read_text()
PYTHON = (ROOT / "docs" / "python.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_first_scenario_runs() -> None:
    (text,) = blocks(FIRST, "toml")
    table = tomllib.loads(text)
    table["workload"]["num_requests"] = 60
    result = kvsim.simulate(table)
    assert [run.kind for run in result.runs] == ["max-buffer", "doubling", "paged"]
    assert all(run.summary["requests"]["finished"] == 60 for run in result.runs)


def test_the_python_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = blocks(PYTHON, "python")
    names: dict[str, object] = {}
    exec(text, names)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert len(names["series"]) > 10  # type: ignore[arg-type]  # a DataFrame


def test_the_page_on_llamacpp_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for text in blocks((ROOT / "docs" / "llamacpp.md").read_text(), "python"):
        exec(text, {})
    assert "K (q8_0): 2176.00 MiB, V (q8_0): 2176.00 MiB" in capsys.readouterr().out


def test_generated_list_of_commands_is_current() -> None:
    assert (ROOT / "docs" / "commands.md").read_text() == page(), "make docs"


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Sphinx warns of broken links, and of pages missing in the navigation."""
    pytest.importorskip("sphinx", reason="pip install '.[docs]'")
    command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-c", ROOT / "docs", ROOT, tmp_path]
    done = subprocess.run(
        [sys.executable, *command], check=False, cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = {path.stem for path in (ROOT / "docs").rglob("*.md")}
    assert pages == {path.stem for path in (tmp_path / "docs").rglob("*.html")}


def test_the_commands_of_the_task_pages_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs every line of their bash blocks, with fewer requests."""
    monkeypatch.chdir(tmp_path)
    lines = [
        line
        for name in ("size-a-pool", "compare-allocators", "fleets", "requests")
        for text in blocks((ROOT / "docs" / f"{name}.md").read_text(), "bash")
        for line in text.splitlines()
    ]
    assert len(lines) >= 5
    (log,) = blocks((ROOT / "docs" / "size-a-pool.md").read_text(), "text server.log")
    (tmp_path / "server.log").write_text(log)
    for line in lines:
        fewer = {"num_requests=300": "num_requests=30", "sessions=12": "sessions=3"}
        fewer |= {"sessions=24": "sessions=1", "cache agents": "cache agents --jobs 1"}
        for old, new in fewer.items():
            line = line.replace(old, new)
        words = shlex.split(line)
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, (line, done.output)


def test_sizing_page_pool_equals_the_commands_answer() -> None:
    text = (ROOT / "docs" / "size-a-pool.md").read_text()
    command = blocks(text, "bash")[0].split()
    done = CliRunner().invoke(app, command[1:], env={"COLUMNS": "100"})
    for line in blocks(text, "text")[0].splitlines()[1:]:
        assert line in done.output


def test_oom_error_on_the_sizing_page_is_read_as_documented(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "size-a-pool.md").read_text()
    (log,) = blocks(text, "text server.log")
    (tmp_path / "server.log").write_text(log)
    done = CliRunner().invoke(app, ["snapshot", str(tmp_path / "server.log")])
    assert done.output == blocks(text, "text")[1]


def test_generated_scenario_reference_is_current() -> None:
    assert (ROOT / "docs" / "scenario.md").read_text() == markdown(), (
        "kvsim options --markdown > docs/scenario.md"
    )


def test_schedule_in_the_docs_replays() -> None:
    (text,) = blocks((ROOT / "reports/schedules/README.md").read_text(), "json")
    rows = simulate_rows(parse_case(json.loads(text), "docs"))
    documented = set(
        re.findall(
            r"`(\w+)`", (ROOT / "reports/schedules/README.md").read_text().split("| field |")[1]
        )
    )
    assert rows[0].keys() <= documented
    assert sorted(name for row in rows for name in row["finished"]) == ["r0", "r1"]


def test_documentation_links_resolve() -> None:
    for source in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", source.read_text()):
            assert (source.parent / target).exists(), f"{source.name}: {target}"


def test_how_it_works_page_prints_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "how-it-works.md").read_text()
    pairs = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, flags=re.DOTALL)
    assert len(pairs) == len(blocks(text, "python")) == 3
    names: dict[str, object] = {}
    for code, printed in pairs:
        exec(code, names)
        assert capsys.readouterr().out == printed


def test_tiers_page_prints_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "tiers.md").read_text()
    names: dict[str, object] = {}
    for code, printed in zip(blocks(text, "python"), blocks(text, "text"), strict=True):
        exec(code, names)
        assert capsys.readouterr().out == printed
    table, hicache = blocks(text, "toml")
    first = tomllib.loads(blocks(FIRST, "toml")[0])
    paged = [each for each in first["allocator"] if each["kind"] == "paged"]
    first["workload"]["num_requests"] = 20
    result = kvsim.simulate(first | tomllib.loads(table) | {"allocator": paged})
    assert [tier["kind"] for tier in result.runs[0].summary["offloading"]["tiers"]] == [
        "vllm-offloading", "file-system",
    ]  # fmt: skip
    result = kvsim.simulate(first | tomllib.loads(hicache))
    assert [tier["kind"] for tier in result.runs[0].summary["offloading"]["tiers"]] == ["hicache"]


def printing(text: str) -> Iterator[tuple[str, str]]:
    """(code, expected output) of each Python block that prints, with the preceding blocks of its
    section. Together the blocks take minutes, so each is a test case.
    """
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        silent = ""
        parts = re.findall(
            r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", section, flags=re.DOTALL
        )
        for code, printed in parts:
            if printed:
                yield silent + code, printed
            else:
                silent += code


MEASURED = list(printing((ROOT / "reports/tiers-measured/README.md").read_text()))


# Half a minute each: the suite prints every third, `make soak` all of them.
@pytest.mark.slow
@pytest.mark.parametrize("part", range(0, len(MEASURED), 1 if is_whole() else 3))
def test_measured_tiers_page_prints_its_output(
    part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = MEASURED[part]
    exec(code, {"kvsim": kvsim})
    assert capsys.readouterr().out == printed


def test_every_block_of_the_measured_tiers_page_is_tested() -> None:
    text = (ROOT / "reports/tiers-measured/README.md").read_text()
    assert len(MEASURED) == len(blocks(text, "text")) == 6


ANSWERS = [page.read_text() for page in sorted((ROOT / "docs" / "answers").glob("*.md"))]
SPLIT = (ROOT / "docs" / "prefill-or-both.md").read_text()


def sections(text: str) -> list[str]:
    """The sections of a page that contain commands, each with the scenarios that it needs."""
    return [part for part in re.split(r"^## ", text, flags=re.MULTILINE) if "```text" in part]


@pytest.mark.parametrize(
    "section",
    [section for text in (*ANSWERS, SPLIT) for section in sections(text)],
    ids=lambda section: section.partition("\n")[0],
)
def test_answers_page_equals_the_commands_output(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scenario in blocks(section, "toml"):
        name = re.match(r"# (\w+\.toml)\n", scenario)
        if name:
            (tmp_path / name[1]).write_text(scenario)
    for name, config in re.findall(r"```json (\S+)\n(.*?)```", section, flags=re.DOTALL):
        (tmp_path / name).write_text(config)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    for command, lines in zip(blocks(section, "bash"), blocks(section, "text"), strict=True):
        check_answer(command, lines)


def check_answer(command: str, lines: str) -> None:
    """Check that the command prints these lines, ignoring differences in spaces."""
    printed = ""
    for line in command.splitlines():
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, done.output
        printed += " ".join(done.output.split())
    wanted = lines.splitlines()
    assert wanted
    for line in wanted:
        assert " ".join(line.split()) in printed
