"""One start-up log: a row of the CSV, as it was collected.

Columns: id, engine_version, model, gpu, tp, pp, dp, quantization, kv_cache_dtype, max_model_len,
gpu_memory_utilization, block_size, max_num_batched_tokens, enforce_eager, weights_gib,
available_kv_gib, kv_cache_tokens, num_gpu_blocks, max_concurrency and notes, with `key=value` pairs
between semicolons (max_num_seqs, dtype, attention_block_size, ...). An empty cell says that
the source does not tell. Columns beyond these are passed over.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.csv_rows import header_of, records
from kvsim.plumbing.reading.files import read_text

COLUMNS = (
    *("id", "engine_version", "model", "gpu", "tp", "pp", "dp", "quantization"),
    *("kv_cache_dtype", "max_model_len", "gpu_memory_utilization", "block_size"),
    *("max_num_batched_tokens", "enforce_eager", "weights_gib", "available_kv_gib"),
    *("kv_cache_tokens", "num_gpu_blocks", "max_concurrency", "notes"),
)
MOST = 1e15  # of any figure: a slip of the pen beyond
_PAIR = re.compile(r"\b([a-z_]+)=([^;\s]+)")


@dataclass(frozen=True, slots=True)
class LogRow:
    """The settings of a server and what its log said of one GPU (the smallest of several).

    weights_gib, pool_gib, pool_tokens, num_gpu_blocks, max_concurrency, attention_block_size: the
    log's; None where it does not say. The other fields are settings.
    """

    id: str
    engine_version: str
    model: str
    gpu: str
    tp: int
    pp: int
    dp: int
    quantization: str
    kv_cache_dtype: str
    max_model_len: int | None
    utilization: float | None
    block_size: int | None
    max_num_batched_tokens: int | None
    max_num_seqs: int | None
    enforce_eager: bool
    dtype: str | None
    notes: str
    weights_gib: float | None
    pool_gib: float | None
    pool_tokens: int | None
    num_gpu_blocks: int | None
    max_concurrency: float | None
    attention_block_size: int | None


def read_rows(path: Path) -> list[LogRow]:
    """Every row of the file; InputError names the file, the row and the column at fault."""
    text = read_text(path)
    header = header_of(text.lines[0])
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise InputError(
            "not a table of start-up logs: columns are missing",
            where=str(path),
            value=", ".join(missing),
            remedy=f"columns: {', '.join(COLUMNS)}",
        )
    rows = [_row(_Cells(cells, f"{path}:{line}")) for line, cells in records(text)]
    if not rows:
        raise InputError("the table has no rows", where=str(path))
    return rows


class _Cells:
    """The cells of one row, as numbers or words."""

    def __init__(self, cells: dict[str, str], where: str) -> None:
        self.cells = {key: cells.get(key, "").strip() for key in (*COLUMNS, *cells)}
        self.notes = dict(_PAIR.findall(self.cells["notes"]))
        self.where = where

    def number(self, name: str, text: str | None = None) -> float | None:
        written = self.cells[name] if text is None else text
        if not written:
            return None
        try:
            value = float(written)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError("not a number", where=f"{self.where}: {name}", value=repr(written))
        if abs(value) > MOST:
            raise InputError(
                "too large", where=f"{self.where}: {name}", value=written, limit=f"{MOST:g}"
            )
        return value

    def whole(self, name: str, least: int = 1) -> int | None:
        value = self.number(name)
        if value is not None and (value < least or value != int(value)):
            raise InputError(
                f"not a whole number >= {least}", where=f"{self.where}: {name}", value=value
            )
        return None if value is None else int(value)

    def noted(self, name: str) -> int | None:
        value = self.number("notes", self.notes.get(name, ""))
        return None if value is None else int(value)


def _row(cells: _Cells) -> LogRow:
    words = cells.cells
    return LogRow(
        id=words["id"],
        engine_version=words["engine_version"],
        model=words["model"],
        gpu=words["gpu"],
        tp=cells.whole("tp") or 1,
        pp=cells.whole("pp") or 1,
        dp=cells.whole("dp") or 1,
        quantization=words["quantization"],
        kv_cache_dtype=words["kv_cache_dtype"],
        max_model_len=cells.whole("max_model_len"),
        utilization=cells.number("gpu_memory_utilization"),
        block_size=cells.whole("block_size"),
        max_num_batched_tokens=cells.whole("max_num_batched_tokens"),
        max_num_seqs=cells.noted("max_num_seqs"),
        enforce_eager=words["enforce_eager"].lower() == "true",
        dtype=cells.notes.get("dtype"),
        notes=words["notes"],
        weights_gib=cells.number("weights_gib"),
        pool_gib=cells.number("available_kv_gib"),
        pool_tokens=cells.whole("kv_cache_tokens"),
        num_gpu_blocks=cells.whole("num_gpu_blocks", least=0),
        max_concurrency=cells.number("max_concurrency"),
        attention_block_size=cells.noted("attention_block_size"),
    )
