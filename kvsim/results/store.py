"""A result on disk: a folder of files, written whole or not at all.

    scenario.toml      what was run, resolved
    summary.json       the numbers
    requests.parquet   one row per request and run
    memory.parquet     one row per span of equal steps and run: the series
    report.html        the page

and, of runs with links that KV moves over, or that were traced,

    links.parquet      copies between prefill and decode replicas, and of tiers
    addresses.parquet  owners of addresses in the pool over time
    events.parquet     preemptions, copies, swaps and cache hits so far, where they changed
    holes.parquet      the largest hole beside what the head of the queue needed
    nodes.parquet      hits in a radix tree, and what became of its nodes

Tables hold all runs, distinguished by the column `run`. Other files in the folder are left alone.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.memory.parts import PARTS
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import read_object
from kvsim.plumbing.reading.parquet import Kind, read_columns
from kvsim.plumbing.toml import to_toml
from kvsim.plumbing.writing import replace_files, text_writer
from kvsim.results.addresses import ADDRESS_COLUMNS, EVENT_COLUMNS, HOLE_COLUMNS, NODE_COLUMNS
from kvsim.results.link_copies import LINK_COLUMNS
from kvsim.results.parquet import table_writer
from kvsim.results.result import Result, Run, Table
from kvsim.results.result_summary import ResultSummary
from kvsim.results.run_tables import REQUEST_COLUMNS, TIER_COLUMNS
from kvsim.results.series import SERIES_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

SCENARIO, SUMMARY, REQUESTS, MEMORY, REPORT = (
    "scenario.toml",
    "summary.json",
    "requests.parquet",
    "memory.parquet",
    "report.html",
)
_TEXT_COLUMNS: dict[str, Kind] = {
    "id": "text",
    "session": "text or nothing",
    "status": "text",
    "reason": "text or nothing",
}
_REQUEST_KINDS: dict[str, Kind] = {
    name: _TEXT_COLUMNS.get(name, "whole") for name in REQUEST_COLUMNS
}
# Tables that not every run has, by their names.
TRACES: dict[str, dict[str, Kind]] = {
    "addresses": {
        name: "text" if name in ("request", "kind") else "whole" for name in ADDRESS_COLUMNS
    },
    "events": dict.fromkeys(EVENT_COLUMNS, "whole"),
    "links": {name: "text" if name == "link" else "whole" for name in LINK_COLUMNS},
    "holes": dict.fromkeys(HOLE_COLUMNS, "whole"),
    "nodes": {name: "text" if name == "event" else "whole" for name in NODE_COLUMNS},
}


def write(folder: Path, result: Result, report_html: str | None) -> None:
    """Write `result` and its page, if there is one, into `folder`, made if it does not exist.

    Only files with these names are replaced, after all were written under temporary names. Tables
    and the page of an older result are removed if the new one has none. Raises InputError if the
    folder cannot be written.
    """
    summary = json.dumps(result.summary(), indent=2, ensure_ascii=False) + "\n"
    head = f"# Written by kvsim {result.version}\n"
    traces = {name: _trace(result, name) for name in TRACES}
    replace_files(
        folder,
        {
            **{_file(name): table_writer(frames) for name, frames in traces.items() if frames},
            SCENARIO: text_writer(head + to_toml(result.scenario)),
            REQUESTS: table_writer({run.label: run.columns("requests") for run in result.runs}),
            MEMORY: table_writer({run.label: run.columns("memory") for run in result.runs}),
            **({} if report_html is None else {REPORT: text_writer(report_html)}),
            # Last: a folder with a summary is a whole result.
            SUMMARY: text_writer(summary),
        },
    )
    stale = [_file(name) for name, frames in traces.items() if not frames]
    for name in stale if report_html is not None else [*stale, REPORT]:
        with suppress(OSError):
            (folder / name).unlink()


def _trace(result: Result, name: str) -> dict[str, "pd.DataFrame"]:
    """The tables with this name of all runs that have one."""
    frames = ((run.label, run.table(name)) for run in result.runs)
    return {label: frame for label, frame in frames if frame is not None}


def _file(name: str) -> str:
    return f"{name}.parquet"


def read(folder: Path) -> Result:
    """The result stored in `folder`; raises InputError if there is none, or a damaged one."""
    summary = read_summary(folder)
    labels = [run.label for run in summary.runs]
    tables = {
        "requests": _split(
            folder / REQUESTS,
            labels,
            _REQUEST_KINDS,
            dict.fromkeys(TIER_COLUMNS, "whole or nothing"),
        ),
        "memory": _split(
            folder / MEMORY,
            labels,
            dict.fromkeys(SERIES_COLUMNS, "whole"),
            {f"{name}_bytes": "whole or nothing" for name in PARTS},
        ),
    }
    for name, columns in TRACES.items():
        if (folder / _file(name)).exists():
            tables[name] = _split(folder / _file(name), labels, columns)
    runs = (
        Run(
            run.label,
            run.allocator,
            run,
            {name: split[index] for name, split in tables.items()},
        )
        for index, run in enumerate(summary.runs)
    )
    return Result(
        summary.scenario, tuple(runs), summary.kvsim, summary.fleets or (), summary.measured
    )


def read_summary(folder: Path) -> ResultSummary:
    """The folder's summary.json; raises InputError if the folder has no result."""
    path = folder / SUMMARY
    if folder.is_file():
        raise InputError("a file, where the folder of a result is meant", where=str(folder))
    if not path.exists():
        raise InputError(
            f"no stored result here ({SUMMARY} is missing)",
            where=str(folder),
            remedy="make one with: kvsim run SCENARIO --out DIR",
        )
    summary = ResultSummary.parse(read_object(path), f"{path}: not a summary of kvsim")
    labels = [run.label for run in summary.runs]
    if len(set(labels)) < len(labels):
        raise InputError("two runs with the same label", where=str(path), value=", ".join(labels))
    return summary


def _split(
    path: Path,
    labels: Iterable[str],
    columns: Mapping[str, Kind],
    optional: Mapping[str, Kind] | None = None,
) -> list[Table]:
    """The rows of each run, in order, without the column `run`, and without columns that are empty
    in that run.

    A numeric column has a value in each row of a run or in none.
    """
    import pandas as pd

    frame: pd.DataFrame = read_columns(path, {"run": "text", **columns}, optional).to_pandas()
    partial_columns = [name for name in optional or () if name in frame]

    def of_run(label: str) -> pd.DataFrame:
        rows = frame.loc[frame["run"] == label].drop(columns="run").reset_index(drop=True)
        for name in partial_columns:
            missing = int(rows[name].isna().sum())
            if missing == len(rows):
                rows = rows.drop(columns=name)
            elif missing:
                where = f"{path}: {name}"
                raise InputError("a column has rows without a value", where=where, value=missing)
            else:
                rows[name] = rows[name].astype("int64")
        return rows

    return [partial(of_run, label) for label in labels]
