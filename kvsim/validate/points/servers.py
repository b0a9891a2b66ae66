"""The server and the benchmark behind a row: flags and lengths that its table does not say."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from kvsim.plumbing.reading.toml_text import loads
from kvsim.validate.points.labels import Split
from kvsim.validate.points.rows import Point

_TIMES = re.compile(r"(\d+) \* isl")


class Benchmark(NamedTuple):
    """name, source: who measured. shortest: the shortest length drawn, as a share of the nominal
    one. requests_a_client: requests that each client sends, one after the other.
    """

    name: str
    source: str
    shortest: float
    requests_a_client: int


@cache
def _tables() -> dict[str, Any]:
    return loads(files("kvsim.validate.points").joinpath("servers.toml").read_text("utf-8"))


def benchmark_of(row: Point) -> Benchmark:
    """By the beginning of the row's silicon_data_source; the last entry takes all others."""
    source = row.silicon_data_source.removeprefix("source_file=")
    entries: dict[str, dict[str, Any]] = _tables()["benchmark"]
    fits = (name for name, table in entries.items() if source.startswith(tuple(table["starts"])))
    name = next(fits)
    return Benchmark(name, *(entries[name][key] for key in Benchmark._fields[1:]))


def flags_of(row: Point, split: Split) -> dict[str, Any]:
    """The flags of the first entry that fits, numbers worked out; {} where none does."""
    labels = {
        **row.model_dump(),
        "benchmark": benchmark_of(row).name,
        "gpus": split.tensor_parallel,
    }
    for table in _tables()["server"]:
        if _fits(table["match"], labels):
            return {key: _number(value, row.isl) for key, value in table.items() if key != "match"}
    return {}


def _fits(match: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    return all(
        labels[key] in (wanted if isinstance(wanted, list) else [wanted])
        for key, wanted in match.items()
    )


def _number(value: Any, isl: int) -> Any:
    times = _TIMES.fullmatch(value) if isinstance(value, str) else None
    return int(times[1]) * isl if times else value
