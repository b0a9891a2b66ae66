"""`--help`: whole names at 80 columns, an example, a group for each command."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from kvsim.cli import COMMANDS, GROUPS, app


def _options(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Each command that takes options, as words, and the names of its options."""
    subcommands = getattr(command, "commands", {})
    for name, sub in subcommands.items():
        yield from _options(sub, *words, name)
    if words:
        names = [
            name
            for parameter in command.params
            if not getattr(parameter, "hidden", False) and parameter.param_type_name == "option"
            for name in (*parameter.opts, *parameter.secondary_opts)
            if name.startswith("--")
        ]
        yield words, names


ALL = dict(_options(get_command(app)))


def _help(*words: str) -> str:
    done = CliRunner().invoke(
        app, [*words, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}
    )
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_no_option_name_is_cut_at_80_columns(words: tuple[str, ...]) -> None:
    shown = _help(*words)
    missing = [name for name in ALL[words] if not re.search(rf"{name}(?![\w-])", shown)]
    assert not missing
    assert "…" not in shown


def test_help_lists_every_command_in_its_group() -> None:
    shown = _help()
    assert list(COMMANDS) == [name for commands in GROUPS.values() for name in commands]
    places = [shown.index(f"─ {group} ─") for group in GROUPS]
    assert places == sorted(places)
    for name in COMMANDS:
        assert re.search(rf"│ {name} ", shown), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_an_example_that_parses(name: str) -> None:
    """The example stands in `--help`, names the command, and uses no option that is not there."""
    example = COMMANDS[name].example
    assert " ".join(example.split()) in " ".join(_help(name).split())
    words = example.split()
    assert words[:2] == ["kvsim", name]
    known = {option for path, options in ALL.items() if path[0] == name for option in options}
    assert {word for word in words if word.startswith("--")} <= known
