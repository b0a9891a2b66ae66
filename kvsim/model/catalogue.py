"""The built-in models, by short name or by Hugging Face id.

`catalogue.toml` beside this file holds, for each name, the ids it answers to and the keys of its
published config.json that matter here.
"""

from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from kvsim.model.model import Model
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.toml_text import loads


@cache
def _tables() -> dict[str, dict[str, Any]]:
    text = files("kvsim.model").joinpath("catalogue.toml").read_text(encoding="utf-8")
    return loads(text)


@cache
def _by_id() -> dict[str, str]:
    """Lower-case names and ids (whole, and without their organisation) to names."""
    found: dict[str, str] = {}
    for name, table in _tables().items():
        for other in (name, *table["ids"]):
            found[other.lower()] = name
            found.setdefault(other.lower().rpartition("/")[2], name)
    return found


def model_names() -> tuple[str, ...]:
    """The short names, in the catalogue's order."""
    return tuple(_tables())


def named_model(name: str, where: str = "model.name") -> Model:
    """The built-in model of this short name or Hugging Face id, in any case.

    Raises InputError listing close names if there is none.
    """
    wanted = name.strip().lower()
    short = _by_id().get(wanted)
    if short is None:
        close = get_close_matches(wanted.rpartition("/")[2], _by_id(), n=8, cutoff=0.5)
        near = list(dict.fromkeys(_by_id()[match] for match in close))
        listed = f"did you mean {', '.join(near)}?" if near else ", ".join(model_names())
        raise InputError(
            "unknown model",
            where=where,
            value=repr(name),
            remedy=f"{listed} Or give the path of its config.json",
        )
    table = dict(_tables()[short])
    ids = table.pop("ids")
    return replace(Model.from_hf(table, short), source=f"config.json of {ids[0]} on Hugging Face")
