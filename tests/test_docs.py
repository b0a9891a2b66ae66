"""The documentation is run: what it shows works, what it lists is all there is."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

import kvsim
from kvsim.cli import app
from kvsim.commands.reference import markdown
from kvsim.validate.schedule.engines import parse_case
from kvsim.validate.schedule.replay import simulate_rows

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_scenario_of_the_readme_runs() -> None:
    (text,) = blocks(README, "toml")
    table = tomllib.loads(text)
    table["workload"]["num_requests"] = 60
    result = kvsim.simulate(table)
    assert [run.kind for run in result.runs] == ["max-buffer", "doubling", "paged"]
    assert all(run.summary["requests"]["finished"] == 60 for run in result.runs)


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = blocks(README, "python")
    names: dict[str, object] = {}
    exec(text, names)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert len(names["series"]) > 10  # type: ignore[arg-type]  # a DataFrame


def test_every_command_is_in_the_readme() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]  # a group
    for name, command in commands.items():
        for sub in getattr(command, "commands", {None: None}):
            words = f"kvsim {name}" if sub is None else f"kvsim {name} {sub}"
            assert words in README or (sub and f"`{sub}`" in README), words


def test_the_reference_of_scenarios_is_current() -> None:
    assert (ROOT / "docs" / "scenario.md").read_text() == markdown(), (
        "kvsim options --markdown > docs/scenario.md"
    )


def test_the_schedule_of_the_documentation_replays() -> None:
    (text,) = blocks((ROOT / "docs" / "schedules.md").read_text(), "json")
    rows = simulate_rows(parse_case(json.loads(text), "docs"))
    documented = set(
        re.findall(r"`(\w+)`", (ROOT / "docs" / "schedules.md").read_text().split("| field |")[1])
    )
    assert rows[0].keys() <= documented
    assert sorted(name for row in rows for name in row["finished"]) == ["r0", "r1"]


def test_links_of_the_documentation_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_how_it_works_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "how-it-works.md").read_text()
    pairs = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, flags=re.DOTALL)
    assert len(pairs) == len(blocks(text, "python")) == 3
    names: dict[str, object] = {}
    for code, printed in pairs:
        exec(code, names)
        assert capsys.readouterr().out == printed
