"""The headers of safetensors files: the dtype and the shape of each tensor, without its data.

A file begins with the length of its header, in 8 little-endian bytes. Then comes the header, a JSON
object of tensors by name (huggingface.co/docs/safetensors). A checkpoint of several files has an
index, model.safetensors.index.json, with a weight_map that names the file of each tensor.
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import parse_object, read_object

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
LENGTH_BYTES, LONGEST_HEADER = 8, 100_000_000  # the library's own limit
# Bits of an element, by the names of the format.
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


class Tensor(NamedTuple):
    """The header of one tensor. dtype: by safetensors' names, such as BF16."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes as stored."""
        return (self.elements * BITS[self.dtype] + 7) // 8


def folder_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of the checkpoint in a folder, by name; empty without a checkpoint.

    With an index, only files in the index are read, since other files in the folder repeat the same
    tensors. InputError for a file that cannot be read, and for one that the index names and the
    folder does not have.
    """
    index = folder / INDEX
    if index.is_file():
        names = read_object(index).get("weight_map")
        if not isinstance(names, Mapping) or not names:
            raise InputError("names no files", where=f"{index}, weight_map", value=names)
        files = sorted({folder / str(name) for name in names.values()})
        missing = next((file for file in files if not file.is_file()), None)
        if missing is not None:
            raise InputError(
                "the index names a file that is not there", where=str(index), value=missing.name
            )
    elif (folder / SINGLE).is_file():
        files = [folder / SINGLE]
    else:
        files = sorted(folder.glob("*.safetensors"))
    found: dict[str, Tensor] = {}
    for file in files:
        found.update(file_tensors(file))
    return found


def file_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of one file; InputError if it has no valid header."""
    where = str(path)
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            text = file.read(min(length, LONGEST_HEADER))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where) from None
    if not 2 <= length <= LONGEST_HEADER or len(text) < length:
        raise InputError(
            "no header of a safetensors file",
            where=where,
            value=f"{length:,} bytes of a header",
            limit=f"those of the file, and {LONGEST_HEADER:,}",
        )
    return tensors_of(parse_object(text.decode("utf-8", "replace"), where), where)


def tensors_of(header: Mapping[str, Any], where: str) -> dict[str, Tensor]:
    """Parse the tensors in the JSON table of a header."""
    found = {}
    for name, table in header.items():
        if name == "__metadata__":
            continue
        dtype, shape = (table.get(key) for key in ("dtype", "shape")) if table else (None, None)
        if dtype not in BITS or not isinstance(shape, list):
            raise InputError(
                "a tensor without a known dtype and a shape",
                where=f"{where}, {name}",
                value=f"{dtype}, {shape}",
                limit=", ".join(BITS),
            )
        found[name] = Tensor(dtype, tuple(int(size) for size in shape))
    return found
