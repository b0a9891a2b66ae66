"""Write the tables of several runs to one Parquet file, some rows at a time. A column that a run
does not have is null in its rows.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.errors import InvariantError
from kvsim.results.run_tables import Columns

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ROWS_AT_ONCE = 1 << 18


def table_writer(rows_of: "Mapping[str, Columns | pd.DataFrame]") -> Callable[[Path], object]:
    """A writer of all runs' rows, with the run's label as first column. Array columns are converted
    to Arrow while being written, so that they exist in memory only once.
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
    whole = schema.insert(0, pa.field("run", pa.dictionary(pa.int32(), pa.large_string())))

    # Numbers hardly repeat: a dictionary of them takes time and room.
    texts = [field.name for field in whole if not pa.types.is_integer(field.type)]

    def save(path: Path) -> None:
        form = {"compression": "zstd", "use_dictionary": texts}
        # Arrow opens paths of UTF-8 alone.
        with path.open("wb") as file, pq.ParquetWriter(file, whole, **form) as writer:
            for label, columns in tables.items():
                count = len(next(iter(columns.values())))
                for first in range(0, count, ROWS_AT_ONCE):
                    part = slice(first, min(first + ROWS_AT_ONCE, count))
                    run = pa.DictionaryArray.from_arrays(
                        _whole(np.zeros(part.stop - part.start, dtype=np.int32)), _text([label])
                    )
                    num = part.stop - part.start
                    parts = [
                        _part(columns[field.name], part, field.type)
                        if field.name in columns
                        else pa.nulls(num, field.type)
                        for field in schema
                    ]
                    writer.write_table(pa.table([run, *parts], schema=whole))

    return save


def _columns(rows: "Columns | pd.DataFrame") -> Columns:
    """The columns, each an array (n,) or one of Arrow's."""
    import pyarrow as pa

    if isinstance(rows, dict):
        return {
            name: column if isinstance(column, np.ndarray) else _text(column)
            for name, column in rows.items()
        }
    table = pa.Table.from_pandas(rows, preserve_index=False)
    return {name: table.column(name) for name in table.column_names}


def _type(column: Any) -> Any:
    import pyarrow as pa

    return pa.from_numpy_dtype(column.dtype) if isinstance(column, np.ndarray) else column.type


def _part(column: Any, rows: slice, form: Any) -> Any:
    part = _whole(column[rows]) if isinstance(column, np.ndarray) else column[rows]
    return part if part.type == form else part.cast(form)


# Arrow's own constructors import pandas, to see whether they have been given something of its, and
# to cast imports all it can compute.


def _whole(numbers: NDArray[Any]) -> "pa.Array":
    """(n,) integers as an Arrow array."""
    import pyarrow as pa

    values = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(_type(numbers), len(numbers), [None, values])


def _text(texts: list[str | None]) -> "pa.Array":
    """Texts as an Arrow array; of type null if there is none."""
    import pyarrow as pa

    there = np.array([text is not None for text in texts], dtype=np.bool_)
    if not there.any():
        return pa.nulls(len(texts))
    encoded = [b"" if text is None else text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    buffers = [np.packbits(there, bitorder="little"), ends, np.frombuffer(b"".join(encoded), "u1")]
    return pa.Array.from_buffers(pa.large_string(), len(texts), [*map(pa.py_buffer, buffers)])
