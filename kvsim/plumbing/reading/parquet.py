"""Parquet columns, with their types checked: text or int64, with or without missing values."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["text", "text or nothing", "whole", "whole or nothing"]


def read_columns(
    path: Path, columns: Mapping[str, Kind], optional: Mapping[str, Kind] | None = None
) -> "pa.Table":
    """Read a Parquet file as a table. Each of `columns` must exist and have its kind; each of
    `optional` must have its kind if it exists.

    A `whole` column must be int64. InputError if the file is not Parquet or a column is missing or
    of another kind.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            rows = file.read()
        rows.validate(full=True)
    except FileNotFoundError:
        raise InputError("missing from the stored result", where=str(path)) from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError("not a readable Parquet file", where=str(path), value=error) from None
    missing = sorted(columns.keys() - set(rows.column_names))
    if missing:
        raise InputError(f"columns are missing: {', '.join(missing)}", where=str(path))
    if len(set(rows.column_names)) < len(rows.column_names):
        raise InputError("a column is there twice", where=str(path))
    for name, kind in {**(optional or {}), **columns}.items():
        if name in rows.column_names:
            _check(rows.column(name), kind, f"{path}: {name}")
    return rows


def _check(column: "pa.ChunkedArray", kind: Kind, where: str) -> None:
    import pyarrow as pa

    if column.null_count and not kind.endswith("or nothing"):
        raise InputError("a column has rows without a value", where=where, value=column.null_count)
    held = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if kind.startswith("whole"):
        right = pa.types.is_int64(held)
    else:
        right = pa.types.is_string(held) or pa.types.is_large_string(held)
        right = right or (kind == "text or nothing" and pa.types.is_null(held))
    if not right and len(column):
        raise InputError("a column of another kind", where=where, value=column.type, limit=kind)
