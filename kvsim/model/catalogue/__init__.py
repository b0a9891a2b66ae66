"""The built-in models, by short name or by Hugging Face id.

The tables beside this file, a family each, hold for each name the ids it answers to and the keys
of its published config.json that matter here.
"""

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
    """What is known and not understood, by id and by id without its organisation."""
    every = _read("refused").values()
    return {name: table for table in every for name in _names(table["ids"])}


def _read(family: str) -> dict[str, Any]:
    path = files("kvsim.model.catalogue").joinpath(f"{family}.toml")
    return loads(path.read_text(encoding="utf-8"))


def _names(ids: Iterable[str]) -> Iterator[str]:
    for name in ids:
        yield name.lower()
        yield name.lower().rpartition("/")[2]
        # As the name of a copy is read.
        yield name.lower().rpartition("/")[2].replace("_", "-")


@cache
def _by_id() -> dict[str, str]:
    """Lower-case names and ids (whole, and without their organisation) to names."""
    found: dict[str, str] = {}
    for name, table in _tables().items():
        found[name.lower()] = name
        for other in _names(table["ids"]):
            found.setdefault(other, name)
    return found


def model_names() -> tuple[str, ...]:
    """The short names, in the catalogue's order."""
    return tuple(_tables())


def first_id(name: str) -> str:
    """The Hugging Face id of a built-in model, the name itself of any other."""
    short = _by_id().get(name.strip().lower())
    return name if short is None or "/" in name else str(_tables()[short]["ids"][0])


def known_names() -> Mapping[str, str]:
    """Every name and id, also without its organisation, in lower case, with the name it means."""
    return _by_id()


def check_understood(name: str, where: str) -> None:
    """Raise InputError for a model, or a copy of one, that is known to be beyond kvsim."""
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
    short = _by_id().get(name.strip().lower())
    if short is None:
        raise InputError(
            "unknown model",
            where=where,
            value=repr(name),
            remedy=f"{model_like(name)} Or give the path of its config.json",
        )
    return _built(short)


@cache
def _built(short: str) -> Model:
    table = dict(_tables()[short])
    ids = table.pop("ids")
    return replace(Model.from_hf(table, short), source=f"config.json of {ids[0]} on Hugging Face")


def model_like(name: str) -> str:
    """The built-in names close to this one, as a question, or all of them."""
    wanted = name.strip().lower().rpartition("/")[2]
    close = get_close_matches(wanted, _by_id(), n=8, cutoff=0.5)
    near = list(dict.fromkeys(_by_id()[match] for match in close))
    return f"did you mean {', '.join(near)}?" if near else f"built in: {', '.join(model_names())}"
