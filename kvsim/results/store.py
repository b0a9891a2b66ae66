"""A result on disk: a folder of five files, written whole or not at all.

    scenario.toml      what was run, resolved
    summary.json       the numbers
    requests.parquet   one row per request and run
    memory.parquet     one row per stretch of equal steps and run: the series
    report.html        the page

The two tables hold all runs, told apart by the column `run`. Other files in the folder are left
alone.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.plumbing.toml import to_toml
from kvsim.results.recorder import SERIES_COLUMNS
from kvsim.results.result import Result, Run, Table
from kvsim.results.tables import REQUEST_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

SCENARIO, SUMMARY, REQUESTS, MEMORY, REPORT = (
    "scenario.toml",
    "summary.json",
    "requests.parquet",
    "memory.parquet",
    "report.html",
)


def write(folder: Path, result: Result, report_html: str) -> None:
    """Write `result` and its page into `folder`, made if it does not exist.

    Replaces files of its own five names only, and only after all five were written beside them.
    Raises InputError if the folder cannot be written.
    """
    summary = result.summary()
    replace_files(
        folder,
        {
            SCENARIO: _text(f"# Written by kvsim {summary['kvsim']}\n{to_toml(result.scenario)}"),
            REQUESTS: _table({run.label: run.requests for run in result.runs}),
            MEMORY: _table({run.label: run.memory for run in result.runs}),
            REPORT: _text(report_html),
            # Last: a folder with a summary is a whole result.
            SUMMARY: _text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n"),
        },
    )


def check_writable(folder: Path) -> None:
    """Raise InputError if `folder` cannot be made or written, before anything costly is done."""
    place = folder
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise InputError("not a folder", where=str(folder), value=str(place))
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError("cannot write", where=str(folder), value="permission denied")


def replace_files(folder: Path, files: dict[str, Callable[[Path], object]]) -> None:
    """Write every file (name -> its writer) under a temporary name, then rename them in order.

    Raises InputError if the folder cannot be made or written; nothing is left behind then.
    """
    written: list[tuple[Path, Path]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, save in files.items():
            temporary = folder / f".{name}.{os.getpid()}.tmp"
            written.append((temporary, folder / name))
            save(temporary)
        for temporary, final in written:
            temporary.replace(final)
    except OSError as error:
        raise InputError("cannot write", where=str(folder), value=error.strerror or error) from None
    finally:
        for temporary, _ in written:
            with suppress(OSError):
                temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write one text file whole or not at all; raises InputError if it cannot be written."""
    replace_files(path.parent, {path.name: _text(text)})


def read(folder: Path) -> Result:
    """The result stored in `folder`; raises InputError where it is not one, or a damaged one."""
    contents = read_summary(folder)
    labels = [run["label"] for run in contents["runs"]]
    requests = _split(folder / REQUESTS, labels, REQUEST_COLUMNS)
    memory = _split(folder / MEMORY, labels, SERIES_COLUMNS)
    return Result(
        contents["scenario"],
        tuple(
            Run(run["label"], run["allocator"], run, {"requests": rows, "memory": series})
            for run, rows, series in zip(contents["runs"], requests, memory, strict=True)
        ),
        contents["kvsim"],
    )


def read_summary(folder: Path) -> dict[str, Any]:
    """The contents of the folder's summary.json; raises InputError where it is not a result."""
    path = folder / SUMMARY
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"no stored result here ({SUMMARY} is missing)",
            where=str(folder),
            remedy="make one with: kvsim run SCENARIO --out DIR",
        ) from None
    except (OSError, ValueError) as error:
        raise InputError("not a summary of kvsim", where=str(path), value=error) from None
    if not (
        isinstance(contents, dict)
        and {"kvsim", "scenario", "runs"} <= contents.keys()
        and isinstance(contents["runs"], list)
        and all(isinstance(run, dict) and {"label", "allocator"} <= run.keys()
                for run in contents["runs"])
    ):  # fmt: skip
        raise InputError(
            "not a summary of kvsim",
            where=str(path),
            remedy="it must hold kvsim, scenario and runs with their labels and allocators",
        )
    return contents


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text, encoding="utf-8", newline="\n")


def _table(frames: dict[str, "pd.DataFrame"]) -> Callable[[Path], object]:
    """A writer of all runs' rows as one Parquet table, the run's label in front."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for label, frame in frames.items():
        rows = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
        run = pa.array([label] * len(rows), pa.string()).dictionary_encode()
        tables.append(rows.add_column(0, pa.field("run", run.type), run))
    if not tables:
        raise InvariantError("a result without runs cannot be stored")
    # A column without a single value (no session, no refusal) takes its type from its sisters.
    merged = pa.concat_tables(tables, promote_options="permissive")
    return lambda path: pq.write_table(merged, path, compression="zstd")


def _split(path: Path, labels: Iterable[str], columns: Sequence[str]) -> list[Table]:
    """The rows of each run, in order, without the column `run`."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path)
    except FileNotFoundError:
        raise InputError("missing from the stored result", where=str(path)) from None
    except (OSError, pa.ArrowException) as error:
        raise InputError("not a readable Parquet file", where=str(path), value=error) from None
    missing = sorted({"run", *columns} - set(rows.column_names))
    if missing:
        raise InputError("columns are missing", where=str(path), value=", ".join(missing))
    frame: pd.DataFrame = rows.to_pandas()

    def of_run(label: str) -> pd.DataFrame:
        return frame.loc[frame["run"] == label].drop(columns="run").reset_index(drop=True)

    return [partial(of_run, label) for label in labels]
