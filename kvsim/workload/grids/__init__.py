"""Quantile grids measured on public traces, shipped as figures: one JSON file a data set.

A file has `source`, `percent` (rising from 0 to 100) and columns of quantiles at these percentages:
`prompt_tokens`, `output_tokens`, `gap_s`, `think_s`. A column is named `file.column`.
"""

from functools import cache
from importlib.resources import files

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import loads


def names() -> list[str]:
    """The names of all columns, as `file.column`."""
    return [
        f"{name}.{column}"
        for name in _file_names()
        for column in _load(name)
        if column not in ("source", "percent")
    ]


def named(name: str, where: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(probabilities 0..1, quantiles) of `file.column`; the InputError for an unknown name lists
    all.
    """
    file, _, column = name.partition(".")
    if name not in names():
        raise InputError(
            "unknown grid", where=where, value=repr(name), remedy=f"known: {', '.join(names())}"
        )
    table = _load(file)
    return tuple(percent / 100 for percent in table["percent"]), tuple(table[column])


def source(name: str) -> str:
    """The data set and method by which the figures of `file.column` were measured."""
    return str(_load(name.partition(".")[0])["source"])


def _file_names() -> list[str]:
    entries = (entry.name for entry in files(__package__).iterdir())
    return sorted(name.removesuffix(".json") for name in entries if name.endswith(".json"))


@cache
def _load(name: str) -> dict[str, list[float]]:
    text = files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    table: dict[str, list[float]] = loads(text)
    return table
