"""An observed run: a folder that a real engine's recording was put into.

meta.json        the engine's settings
requests.csv     when each request came and was answered
stream.jsonl     the same requests in Mooncake's fields, with ids of blocks of block_size tokens;
                 without it no prompt shares anything
timeseries.csv   the engine's own log: running, waiting and KV usage, tick by tick; may be missing
steps.csv        every step, where `kvsim observe` recorded the run
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from kvsim.observed.meta import RunMeta
from kvsim.observed.own_meta import ObservedMeta
from kvsim.observed.rows import ObservedRequest, Tick, recorded_ticks
from kvsim.observed.steps import ObservedStep
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.csv_rows import records
from kvsim.plumbing.reading.files import read_text
from kvsim.plumbing.reading.json_text import read_object
from kvsim.plumbing.units import ps_from_seconds
from kvsim.request import Request, TokenRuns
from kvsim.workload.content import TokenIds, runs_of_blocks
from kvsim.workload.traces.reader import read_trace

Row = TypeVar("Row", bound=Options)


class ObservedRun(NamedTuple):
    """An observed run's folder, read and checked.

    rows are those of requests.csv; requests are the same as the simulator takes them, in that
    order. ticks are the rows of timeseries.csv, empty without that file. steps are the rows of
    steps.csv if kvsim recorded the run (meta is then an ObservedMeta), else None. assumptions has a
    sentence for each setting that the folder leaves open.
    """

    name: str
    meta: RunMeta
    rows: tuple[ObservedRequest, ...]
    requests: tuple[Request, ...]
    ticks: tuple[Tick, ...]
    steps: tuple[ObservedStep, ...] | None = None
    assumptions: tuple[str, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the folder's files; InputError gives the file, the row and the fault."""
        if not folder.is_dir():
            raise InputError("no such folder", where=str(folder))
        meta = _meta(folder / "meta.json")
        rows = tuple(_table(folder / "requests.csv", ObservedRequest))
        _check_order(folder / "requests.csv", rows)
        series, stream = folder / "timeseries.csv", folder / "stream.jsonl"
        ticks: tuple[Tick, ...] = ()
        if series.exists():
            ticks = recorded_ticks(tuple(_table(series, Tick)), rows, meta.tick_seconds)
        known = stream.exists()
        prompts = _prompts(stream, meta, rows) if known else [row.prompt_runs for row in rows]
        requests = tuple(_request(row, runs) for row, runs in zip(rows, prompts, strict=True))
        steps = None
        if isinstance(meta, ObservedMeta):
            steps = tuple(_table(folder / "steps.csv", ObservedStep))
        assumptions = list(meta.assumptions)
        if not known and meta.shares_prompts:
            assumptions.append("no stream.jsonl: no two prompts share a prefix")
        return cls(
            folder.name, meta.serving(requests), rows, requests, ticks, steps, tuple(assumptions)
        )


def _meta(path: Path) -> RunMeta:
    """Read meta.json: as an ObservedMeta if it has the key kvsim, else as a VllmMeta."""
    table = {key: value for key, value in read_object(path).items() if value is not None}
    return (ObservedMeta if "kvsim" in table else VllmMeta).parse(table, str(path))


def _table(path: Path, row_type: type[Row]) -> Iterator[Row]:
    """The rows of a CSV file, at least one."""
    text = read_text(path)
    if len(text.lines) < 2:
        raise InputError("no rows", where=str(path))
    for line, row in records(text):
        yield row_type.parse(row, f"{path}:{line}")


def _check_order(path: Path, rows: tuple[ObservedRequest, ...]) -> None:
    latest = 0.0
    for number, row in enumerate(rows, start=2):
        where = f"{path}:{number}"
        if row.arrival_s < latest:
            raise InputError("arrivals must not go back", where=where, value=row.arrival_s)
        if not row.arrival_s <= row.first_token_s <= row.last_token_s:
            raise InputError("the request was answered before it came", where=where, value=row.id)
        latest = row.arrival_s


def _prompts(
    path: Path, meta: RunMeta, rows: tuple[ObservedRequest, ...]
) -> list[TokenRuns | None]:
    """The token runs of each request's prompt: from requests.csv where it has them, else from the
    block ids of stream.jsonl; None if unknown.
    """
    trace = read_trace(path, format="mooncake", hash_block_tokens=meta.block_size)
    if len(trace.rows) != len(rows):
        raise InputError(
            "not the requests of requests.csv",
            where=str(path),
            value=len(trace.rows),
            limit=len(rows),
        )
    highest = max((max(row.hash_ids) for row in trace.rows if row.hash_ids), default=-1)
    private = TokenIds((highest + 1) * meta.block_size)
    prompts = []
    for row, content in zip(rows, trace.rows, strict=True):
        lengths = (content.prompt_tokens, content.output_tokens)
        if lengths != (row.prompt_tokens, row.output_tokens):
            raise InputError(
                "lengths differ from those in requests.csv",
                where=f"{path}:{content.line}",
                value=lengths,
                limit=(row.prompt_tokens, row.output_tokens),
            )
        runs = row.prompt_runs
        if runs is None and content.hash_ids is not None:
            runs = runs_of_blocks(content.hash_ids, meta.block_size, row.prompt_tokens, private)
        prompts.append(runs)
    return prompts


def _request(row: ObservedRequest, prompt_runs: TokenRuns | None) -> Request:
    return Request(
        id=row.id,
        arrival_ps=ps_from_seconds(row.arrival_s),
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        max_tokens=row.max_tokens,
        priority=row.priority,
        prompt_runs=prompt_runs,
        output_start=row.output_start,
    )
