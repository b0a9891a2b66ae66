"""An observed run: a folder that a real engine's recording was put into.

meta.json        the engine's settings
requests.csv     when each request came and was answered
stream.jsonl     the same requests in Mooncake's fields, with ids of blocks of block_size tokens
timeseries.csv   the engine's own log: running, waiting and KV usage, tick by tick
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from kvsim.errors import InputError
from kvsim.options import Options
from kvsim.request import Request
from kvsim.units import ps_from_seconds
from kvsim.workload.content import TokenIds, runs_of_blocks
from kvsim.workload.traces.reader import read_trace

Row = TypeVar("Row", bound=Options)


class Meta(Options):
    """The engine's settings, by vLLM's names; what else the file says is for the reader.

    tick_seconds: between rows of the time series. clock_ahead_s: by how much the clock of the time
    series is ahead of that of the requests; None: found from the two.
    """

    model_config = ConfigDict(extra="ignore")

    model: str
    gpu: str
    vllm_version: str
    tensor_parallel_size: PositiveInt = 1
    max_num_seqs: PositiveInt
    max_num_batched_tokens: PositiveInt
    max_model_len: PositiveInt
    block_size: PositiveInt
    num_gpu_blocks: Annotated[int, Field(ge=2)]
    enable_prefix_caching: bool
    enable_chunked_prefill: bool = True
    async_scheduling: bool
    scheduler_reserve_full_isl: bool = True
    long_prefill_token_threshold: NonNegativeInt = 0
    policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    tick_seconds: Annotated[float, Field(gt=0)] = 1.0
    clock_ahead_s: float | None = None
    source: str = ""


class ObservedRequest(Options):
    """One row of requests.csv, in seconds from the first arrival.

    queued_s: when the engine took it from its input queue (None: on arrival); scheduled_s: its
    first admission, for the reader.
    """

    id: str
    arrival_s: NonNegativeFloat
    prompt_tokens: PositiveInt
    output_tokens: PositiveInt
    queued_s: NonNegativeFloat | None = None
    scheduled_s: NonNegativeFloat | None = None
    first_token_s: NonNegativeFloat
    last_token_s: NonNegativeFloat
    priority: int = 0


class Tick(Options):
    """One row of timeseries.csv: the last record of the engine in [t - tick_seconds, t)."""

    t: NonNegativeFloat
    prompt_throughput: NonNegativeFloat = 0.0
    gen_throughput: NonNegativeFloat = 0.0
    running: NonNegativeInt
    waiting: NonNegativeInt
    kv_cache_pct: Annotated[float, Field(ge=0, le=100)]


class ObservedRun(NamedTuple):
    """A folder, read and checked. requests: as the simulator takes them, in the rows' order."""

    name: str
    meta: Meta
    rows: tuple[ObservedRequest, ...]
    requests: tuple[Request, ...]
    ticks: tuple[Tick, ...]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the four files; InputError names file, row and fault."""
        if not folder.is_dir():
            raise InputError("no such folder", where=str(folder))
        meta = Meta.parse(_json_object(folder / "meta.json"), str(folder / "meta.json"))
        rows = tuple(_table(folder / "requests.csv", ObservedRequest))
        ticks = tuple(_table(folder / "timeseries.csv", Tick))
        _check_order(folder / "requests.csv", rows)
        return cls(folder.name, meta, rows, _requests(folder / "stream.jsonl", meta, rows), ticks)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError("cannot read it", where=str(path), value=error.strerror) from None
    except ValueError as error:
        raise InputError("not a JSON file", where=str(path), value=error) from None
    if not isinstance(table, dict):
        raise InputError("not a JSON object", where=str(path))
    return {key: value for key, value in table.items() if value is not None}


def _table(path: Path, row_type: type[Row]) -> Iterator[Row]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError("cannot read it", where=str(path), value=error.strerror) from None
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8 text", where=str(path), value=f"byte {error.start}") from None
    reader = csv.DictReader(text.splitlines())
    empty = True
    for row in reader:
        empty = False
        where = f"{path}:{reader.line_num}"
        if None in row or None in row.values():
            raise InputError(
                "wrong number of fields", where=where, limit=len(reader.fieldnames or ())
            )
        yield row_type.parse({key: value for key, value in row.items() if value != ""}, where)
    if empty:
        raise InputError("no rows", where=str(path))


def _check_order(path: Path, rows: tuple[ObservedRequest, ...]) -> None:
    latest = 0.0
    for number, row in enumerate(rows, start=2):
        where = f"{path}:{number}"
        if row.arrival_s < latest:
            raise InputError("arrivals must not go back", where=where, value=row.arrival_s)
        if not row.arrival_s <= row.first_token_s <= row.last_token_s:
            raise InputError("the request was answered before it came", where=where, value=row.id)
        latest = row.arrival_s


def _requests(path: Path, meta: Meta, rows: tuple[ObservedRequest, ...]) -> tuple[Request, ...]:
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
    requests = []
    for row, content in zip(rows, trace.rows, strict=True):
        lengths = (content.prompt_tokens, content.output_tokens)
        if lengths != (row.prompt_tokens, row.output_tokens):
            raise InputError(
                "lengths differ from those in requests.csv",
                where=f"{path}:{content.line}",
                value=lengths,
                limit=(row.prompt_tokens, row.output_tokens),
            )
        runs = None
        if content.hash_ids is not None:
            runs = runs_of_blocks(content.hash_ids, meta.block_size, row.prompt_tokens, private)
        requests.append(
            Request(
                id=row.id,
                arrival_ps=ps_from_seconds(row.arrival_s),
                prompt_tokens=row.prompt_tokens,
                output_tokens=row.output_tokens,
                priority=row.priority,
                prompt_runs=runs,
            )
        )
    return tuple(requests)
