"""One start-up log: a row of the CSV, as it was collected.

The first columns are id, engine_version, model, gpu, tp, pp, dp, quantization, kv_cache_dtype,
max_model_len, gpu_memory_utilization, block_size, max_num_batched_tokens and enforce_eager. Then
follow weights_gib, available_kv_gib, kv_cache_tokens, num_gpu_blocks, max_concurrency and notes,
with `key=value` pairs between semicolons (max_num_seqs, dtype, attention_block_size, ...). An empty
cell says that the source has no value. Columns beyond these are ignored. An engine_version that
names SGLang or TensorRT-LLM: `other_engines` says what these columns are there.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.csv_rows import header_of, records
from kvsim.plumbing.reading.files import read_text

MOST = 10**15  # of any figure: a slip of the pen beyond
_NOTED = ("max_num_seqs", "dtype", "attention_block_size")  # settings that the notes may hold
_PAIR = re.compile(r"\b([a-z_]+)=([^;\s]+)")
Count = Annotated[int, Field(ge=1, le=MOST)]
Figure = Annotated[float, Field(ge=-MOST, le=MOST)]
Switch = Annotated[bool, BeforeValidator(lambda text: str(text).lower() == "true")]


class LogRow(Options):
    """The settings of a server, and what its log printed about one GPU (the smallest of several).

    weights_gib, pool_gib, pool_tokens, num_gpu_blocks, max_concurrency and attention_block_size are
    from the log, None if it does not print them. The other fields are settings.
    """

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    id: str = ""
    engine_version: str = ""
    model: str = ""
    gpu: str = ""
    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    quantization: str = ""
    kv_cache_dtype: str = ""
    max_model_len: Count | None = None
    utilization: Figure | None = Field(None, alias="gpu_memory_utilization")
    block_size: Count | None = None
    max_num_batched_tokens: Count | None = None
    max_num_seqs: Count | None = None
    enforce_eager: Switch = False
    dtype: str | None = None
    notes: str = ""
    weights_gib: Figure | None = None
    pool_gib: Figure | None = Field(None, alias="available_kv_gib")
    pool_tokens: Count | None = Field(None, alias="kv_cache_tokens")
    num_gpu_blocks: Annotated[int, Field(ge=0, le=MOST)] | None = None
    max_concurrency: Figure | None = None
    attention_block_size: Count | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_notes(cls, cells: Mapping[str, Any]) -> dict[str, Any]:
        """The cells without surrounding white space, with the settings that the notes contain
        added.
        """
        found = {name: text for name, cell in cells.items() if (text := str(cell).strip())}
        noted = dict(_PAIR.findall(found.get("notes", "")))
        return found | {name: noted[name] for name in _NOTED if name in noted}


COLUMNS = tuple(
    field.alias or name for name, field in LogRow.model_fields.items() if name not in _NOTED
)


def read_rows(path: Path) -> list[LogRow]:
    """All rows of the file; InputError names the file, the row and the column of a fault."""
    text = read_text(path)
    header = header_of(text.lines[0])
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise InputError(
            f"not a table of start-up logs: columns are missing: {', '.join(missing)}",
            where=str(path),
            value=f"the columns {', '.join(header)}",
        )
    rows = [LogRow.parse(cells, f"{path}:{line}") for line, cells in records(text)]
    if not rows:
        raise InputError("the table has no rows", where=str(path))
    return rows
