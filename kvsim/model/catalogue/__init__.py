"""The built-in models, by short name or by Hugging Face id.

The TOML files in this folder, one for each family, list the models by name. Each entry has the ids
and the keys of the published config.json that matter here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from kvsim.model.model import Model
from kvsim.model.names import read_name
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.toml_text import loads

FAMILIES = (
    *("first-generation", "llama", "granite", "mistral", "qwen", "qwen-vl", "qwen-3.5"),
    *("deepseek", "kimi", "glm", "minimax", "gemma", "gpt-oss", "phi", "hybrids"),
    *("cohere", "olmo", "starcoder"),
)


@cache
def _tables() -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {}
    for family in FAMILIES:
        tables |= _read(family)
    return tables


@cache
def _refused() -> dict[str, dict[str, Any]]:
    """Models that kvsim knows but cannot simulate, by id, with and without the organisation."""
    every = _read("refused").values()
    return {name: table for table in every for name in _names(table["ids"])}


@cache
def _text(family: str) -> str:
    return files("kvsim.model.catalogue").joinpath(f"{family}.toml").read_text(encoding="utf-8")


@cache
def _read(family: str) -> dict[str, Any]:
    return loads(_text(family))


def _names(ids: Iterable[str]) -> Iterator[str]:
    for name in ids:
        yield name.lower()
        yield name.lower().rpartition("/")[2]
        # As the name of a copy is read.
        yield name.lower().rpartition("/")[2].replace("_", "-")


@cache
def _by_id() -> dict[str, str]:
    """Map from lower-case names and ids (with and without the organisation) to short names."""
    return _index(_tables())


def _index(tables: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, table in tables.items():
        found[name.lower()] = name
        for other in _names(table["ids"]):
            found.setdefault(other, name)
    return found


@cache
def _named(name: str) -> tuple[str, dict[str, Any]] | None:
    """The short name and table of a built-in model by any of its names; None for an unknown name.

    Only families that mention the name are parsed: parsing all takes longer than a small run.
    """
    wanted = name.strip().lower()
    part = wanted.rpartition("/")[2].replace("_", "-")
    tables: dict[str, dict[str, Any]] = {}
    for family in FAMILIES:
        if part in _text(family).lower().replace("_", "-"):
            tables |= _read(family)
    short = _index(tables).get(wanted)
    return None if short is None else (short, tables[short])


def is_built_in(name: str) -> bool:
    """Whether `name` is the short name or an id of a built-in model, in any case."""
    return _named(name) is not None


def model_names() -> tuple[str, ...]:
    """The short names, in the catalogue's order."""
    return tuple(_tables())


def first_id(name: str) -> str:
    """The Hugging Face id of a built-in model; any other name is returned unchanged."""
    found = _named(name)
    return name if found is None or "/" in name else str(found[1]["ids"][0])


def elder_of(name: str) -> str | None:
    """The id of the elder model, by the version in its name, that this id is taken for; None where
    the catalogue has the model itself.
    """
    found = _named(name)
    if found is None or "/" not in name:
        return None
    first = str(found[1]["ids"][0])
    return None if _version(name) == _version(first) else first


def _version(name: str) -> str | None:
    """The first number of a name without its organisation, such as 3.5."""
    found = re.search(r"\d+(\.\d+)*", name.rpartition("/")[2])
    return found[0] if found else None


def known_names() -> Mapping[str, str]:
    """Map from every lower-case name and id (with and without organisation) to the short name."""
    return _by_id()


def check_understood(name: str, where: str) -> None:
    """Raise InputError for a model, or a copy of one, that kvsim is known to be unable to
    simulate.
    """
    copy = read_name(name, _refused())
    if copy is not None:
        table = _refused()[copy.base]
        raise InputError(
            f"this architecture is not understood: {table['why']}",
            where=where,
            value=f"{name!r}, model_type {table['model_type']!r}",
        )


def named_model(name: str, where: str = "model.name") -> Model:
    """The built-in model of this short name or Hugging Face id, in any case.

    Raises InputError listing close names if there is none.
    """
    found = _named(name)
    if found is None:
        raise InputError(
            "unknown model",
            where=where,
            value=repr(name),
            remedy=f"{model_like(name)} Or give the path of its config.json",
        )
    return _built(found[0])


@cache
def _built(short: str) -> Model:
    found = _named(short)
    assert found is not None
    table = dict(found[1])
    ids = table.pop("ids")
    return replace(Model.from_hf(table, short), source=f"config.json of {ids[0]} on Hugging Face")


def model_like(name: str) -> str:
    """A suggestion for an error: the built-in names close to `name` as a question, or all names."""
    wanted = name.strip().lower().rpartition("/")[2]
    close = get_close_matches(wanted, _by_id(), n=8, cutoff=0.5)
    near = list(dict.fromkeys(_by_id()[match] for match in close))
    return f"did you mean {', '.join(near)}?" if near else f"built in: {', '.join(model_names())}"
