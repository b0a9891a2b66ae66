"""The requests in a detailed result of `vllm bench serve`, which stores one list per column."""

from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.readers.parsing.fields import Fields, nanoseconds, rows, tokens

_COLUMNS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")


class BenchRow(NamedTuple):
    """One request. start_ns is on the benchmark's clock; ttft_ns and e2e_ns are relative to it.
    None: not in the result.
    """

    prompt_tokens: int | None
    output_tokens: int | None
    start_ns: int | None
    ttft_ns: int | None
    e2e_ns: int | None
    failed: bool


def bench_rows(result: Fields) -> list[BenchRow]:
    """The requests in the order in which they were sent; none if the result is not detailed."""
    columns = {name: result.rows(name) for name in _COLUMNS}
    count = len(columns["input_lens"])
    for name, column in columns.items():
        if count and column and len(column) != count:
            what = "the lists are not equally long"
            raise InputError(what, where=result.place(name), value=len(column), limit=count)
    return [
        _row({name: column[index] for name, column in columns.items() if column}, result)
        for index in range(count)
    ]


def _row(cells: dict[str, Any], result: Fields) -> BenchRow:
    start, ttft = (
        nanoseconds(cells.get(name), result.place(name)) for name in ("start_times", "ttfts")
    )
    e2e = None
    if ttft is not None and "itls" in cells:
        place = result.place("itls")
        e2e = ttft + sum(nanoseconds(gap, place) or 0 for gap in rows(cells["itls"], place))
    return BenchRow(
        tokens(cells["input_lens"], result.place("input_lens")),
        tokens(cells.get("output_lens"), result.place("output_lens")),
        start,
        ttft,
        e2e,
        bool(cells.get("errors")),
    )
