"""The tables of several runs as one Parquet file, some rows at a time."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvsim.plumbing.errors import InvariantError
from kvsim.results.tables import Columns

if TYPE_CHECKING:
    import pandas as pd

ROWS_AT_ONCE = 1 << 18


def table_writer(rows_of: "Mapping[str, Columns | pd.DataFrame]") -> Callable[[Path], object]:
    """A writer of all runs' rows, the run's label in front. Columns that are arrays become Arrow's
    as they are written, so that they take no memory twice.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not rows_of:
        raise InvariantError("a result without runs cannot be stored")
    tables = {label: _columns(rows) for label, rows in rows_of.items()}
    schemas = [
        pa.schema([(name, _type(column)) for name, column in columns.items()])
        for columns in tables.values()
    ]
    # A column without a single value (no session, no refusal) takes its type from its sisters.
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    whole = schema.insert(0, pa.field("run", pa.dictionary(pa.int32(), pa.string())))

    def save(path: Path) -> None:
        with pq.ParquetWriter(path, whole, compression="zstd") as writer:
            for label, columns in tables.items():
                count = len(next(iter(columns.values())))
                for first in range(0, count, ROWS_AT_ONCE):
                    part = slice(first, min(first + ROWS_AT_ONCE, count))
                    run = pa.array([label] * (part.stop - part.start)).dictionary_encode()
                    parts = [_part(columns[field.name], part).cast(field.type) for field in schema]
                    writer.write_table(pa.table([run, *parts], schema=whole))

    return save


def _columns(rows: "Columns | pd.DataFrame") -> Columns:
    """The columns, each an array (n,) or one of Arrow's."""
    import pyarrow as pa

    if isinstance(rows, dict):
        return {
            name: column if isinstance(column, np.ndarray) else pa.array(column)
            for name, column in rows.items()
        }
    table = pa.Table.from_pandas(rows, preserve_index=False)
    return {name: table.column(name) for name in table.column_names}


def _type(column: Any) -> Any:
    import pyarrow as pa

    return pa.from_numpy_dtype(column.dtype) if isinstance(column, np.ndarray) else column.type


def _part(column: Any, rows: slice) -> Any:
    import pyarrow as pa

    return pa.array(column[rows]) if isinstance(column, np.ndarray) else column[rows]
