"""A sweep on disk: the journal while it runs, and its results at the end.

journal.jsonl   every finished point, one line each, kept for the next sweep into this folder
sweep.parquet   one row a setting, seed and allocator
sweep.toml      what was swept
sweep.html      the page, written with sweep.json and sweep.md
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvsim.plumbing.toml import to_toml
from kvsim.plumbing.writing import replace_files, text_writer
from kvsim.version import VERSION
from kvsim.whatif.sweep.sweep import Sweep

if TYPE_CHECKING:
    import pandas as pd

TABLE, PLAN = "sweep.parquet", "sweep.toml"


def write(folder: Path, sweep: Sweep, frame: "pd.DataFrame") -> None:
    """Write the results table and the plan, both or neither; InputError if the folder cannot be
    written.
    """
    plan: dict[str, Any] = {
        "vary": [
            {"keys": list(axis.keys), "values": [list(row) for row in axis.rows]}
            for axis in sweep.axes
        ],
        "seeds": list(sweep.seeds),
        "scenario": sweep.table,
    }
    text = f"# Written by kvsim {VERSION}\n{to_toml(plan)}"
    files = {TABLE: lambda path: _parquet(frame, path), PLAN: text_writer(text)}
    replace_files(folder, files)


def _parquet(frame: "pd.DataFrame", path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    with path.open("wb") as file:  # Arrow opens paths of UTF-8 alone
        pq.write_table(table, file, compression="zstd")
