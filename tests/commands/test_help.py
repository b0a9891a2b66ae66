"""`--help`: uncut option names at 80 columns, an example, and a group for each command."""

import re
from collections.abc import Iterator
from typing import Any

from support.each import check_each
from typer.main import get_command
from typer.testing import CliRunner

from kvsim.cli import COMMANDS, GROUPS, app
from kvsim.commands.memory.flags import PANELS_OF
from kvsim.workload.catalogue import entries


def _options(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """(words of the command, names of its options) for each command with options."""
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


def test_no_option_name_is_cut_at_80_columns() -> None:
    def check(words: tuple[str, ...]) -> None:
        engines = PANELS_OF if words == ("memory",) else ()  # which lists one engine's at a time
        shown = "".join([_help(*words), *(_help(*words, "--engine", name) for name in engines)])
        missing = [name for name in ALL[words] if not re.search(rf"{name}(?![\w-])", shown)]
        assert not missing
        assert "…" not in shown

    check_each(ALL, check)


def test_memory_lists_the_options_of_the_engine_that_is_named() -> None:
    plain, sglang = _help("memory"), _help("memory", "--engine=sglang")
    assert "--gpu-memory-utilization" in plain
    assert "--page-size" not in plain
    assert "--page-size" in sglang
    assert "--gpu-memory-utilization" not in sglang
    assert "--tensor-parallel-size" not in _help("memory", "--engine", "ollama")


def test_help_lists_every_command_in_its_group() -> None:
    shown = _help()
    assert list(COMMANDS) == [name for commands in GROUPS.values() for name in commands]
    places = [shown.index(f"─ {group} ─") for group in GROUPS]
    assert places == sorted(places)
    for name in COMMANDS:
        assert re.search(rf"│ {name} ", shown), name


def test_help_shows_an_example_that_parses() -> None:
    """The example of every command, also in groups, uses only existing commands and options."""

    def check(words: tuple[str, ...]) -> None:
        (example,) = re.findall(r"Example:\s(.*)", " ".join(_help(*words).split()))
        line = example.split()
        assert line[: 1 + len(words)] == ["kvsim", *words]
        named = max((path for path in ALL if line[1 : 1 + len(path)] == list(path)), key=len)
        assert {word for word in line if word.startswith("--")} <= set(ALL[named])

    check_each([(), *ALL], check)


def test_no_line_of_help_is_wider_than_80_columns() -> None:
    for words in ALL:
        assert max(map(len, _help(*words).splitlines())) <= 80, words


def test_traces_in_help_examples_are_in_the_catalogue() -> None:
    """An example once named `azure-conv`, which is a recipe and no trace."""
    named = [
        word
        for name in ("traces", "convert")
        for word in COMMANDS[name].example.split()
        if word.startswith("azure")
    ]
    assert named
    assert set(named) <= set(entries())
