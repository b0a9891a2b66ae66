"""The reference of scenarios (docs/scenario.md, kvsim options) contains every table."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.commands.reference import CHOICES, entries
from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.options import Options
from kvsim.scenario.resolved import PATH_KEYS


def parts(annotation: Any) -> Iterator[Any]:
    """The classes and the metadata inside an annotation."""
    yield annotation
    inside = get_args(annotation)
    if get_origin(annotation) is Annotated:
        yield from inside[1:]
        inside = inside[:1]
    for each in inside:
        yield from parts(each)


def test_every_table_inside_a_table_is_listed() -> None:
    listed = tuple({entry.options for entry in entries()})
    asked = 0
    for entry in entries():
        for name, field in entry.options.model_fields.items():
            where = f"{entry.table}.{name}"
            for part in (*field.metadata, *parts(field.annotation)):
                if isinstance(part, OneOf):
                    asked += 1
                    assert any(part.registry is each for each in CHOICES.values()), where
                elif isinstance(part, type) and issubclass(part, Options):
                    asked += 1
                    assert any(issubclass(each, part) for each in listed), where
    assert asked > 50


def test_path_keys_list_every_option_that_is_a_path() -> None:
    """The explorer uses this list to confine paths to the scenario's folder."""
    found = {
        name
        for entry in entries()
        for name, field in entry.options.model_fields.items()
        if any(part is Path for part in parts(field.annotation))
    }
    assert {"path", "hf_config"} <= found <= set(PATH_KEYS)


def test_options_command_finds_keys_of_inner_tables() -> None:
    for key, table in (
        ("ttl_s", "allocator.eviction_policy"),
        ("per_prompt", "workload.items"),
        ("sigma", "workload.prompt.components"),
    ):
        done = CliRunner().invoke(app, ["options", key])
        assert done.exit_code == 0
        assert table in done.stdout
