"""Settings of a row's server and benchmark that the table does not contain: flags and lengths."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from evidence.points.labels import Split
from evidence.points.rows import Point
from kvsim.plumbing.reading.toml_text import loads

_TIMES = re.compile(r"(\d+) \* isl")


class Benchmark(NamedTuple):
    """How a benchmark sends requests. name, source: of the benchmark.

    shortest: shortest length drawn, as a share of the nominal one. requests_a_client: requests that
    each client sends, one after the other. distinct_prompts: number of prompts that requests are
    drawn from; 0: each request has its own. front_end: whether the fitted front ends apply to its
    kind of client.
    """

    name: str
    source: str
    shortest: float
    requests_a_client: int
    distinct_prompts: int
    front_end: bool


@cache
def _tables() -> dict[str, Any]:
    return loads(files("evidence.points").joinpath("servers.toml").read_text("utf-8"))


def benchmark_of(row: Point) -> Benchmark:
    """The first benchmark that matches the beginning of the row's silicon_data_source; the last
    entry matches any.
    """
    source = row.silicon_data_source.removeprefix("source_file=")
    entries: dict[str, dict[str, Any]] = _tables()["benchmark"]
    fits = (name for name, table in entries.items() if source.startswith(tuple(table["starts"])))
    name = next(fits)
    return Benchmark(name, *(entries[name][key] for key in Benchmark._fields[1:]))


def flags_of(row: Point, split: Split, clients: int) -> dict[str, Any]:
    """The flags of the first entry that matches the row, with numbers computed; or {}."""
    labels = {
        **row.model_dump(),
        "benchmark": benchmark_of(row).name,
        "gpus": split.tensor_parallel,
    }
    for table in _tables()["server"]:
        if _fits(table["match"], labels):
            return {
                key: _number(value, row.isl, clients)
                for key, value in table.items()
                if key != "match"
            }
    return {}


def _fits(match: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    return all(
        labels[key] in (wanted if isinstance(wanted, list) else [wanted])
        for key, wanted in match.items()
    )


def _number(value: Any, isl: int, clients: int) -> Any:
    if isinstance(value, dict):  # {4 = 10, 16 = 30}: 10 from 4 clients on, 30 from 16 on
        fitting = [least for least in value if int(least) <= clients]
        return value[max(fitting, key=int)] if fitting else None
    times = _TIMES.fullmatch(value) if isinstance(value, str) else None
    return int(times[1]) * isl if times else value
