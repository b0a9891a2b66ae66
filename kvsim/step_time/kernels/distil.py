"""Distil measured kernels: keep the points of each curve that linear interpolation needs."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kvsim.plumbing.errors import InputError
from kvsim.step_time.kernels.columns import DEFAULTS, FORMATS, MEASURED, MeasuredKernel
from kvsim.step_time.kernels.tables import WORDS
from kvsim.step_time.kernels.versions import version_key

if TYPE_CHECKING:
    import pyarrow as pa

TOLERANCE = 0.025  # of a time, by which a point that is left out may lie off the line
ROUGH = {"gemm": 0.05}  # the same where the curves are jagged, and several count in every step
DIFFERS = 0.15  # median difference from which an older version's curve is kept beside the newest
SPOILED = 2.0  # times as slow as another version: launches or compilation, and not the kernel
MANTISSA = np.uint32(0xFFFFC000)  # 9 bits of a float32: 0.2 %
HALF = np.uint32(0x2000)

Key = tuple[str, str, tuple[int, ...]]


class KernelCurve(NamedTuple):
    """Times in us at ascending x; both one-dimensional, of the same length."""

    x: "np.ndarray[Any, Any]"
    us: "np.ndarray[Any, Any]"


class KernelRow(NamedTuple):
    """A curve of the distilled tables, with its kernel and shape."""

    kind: str
    dtype: str
    version: str
    shape: tuple[int, ...]
    curve: KernelCurve


def distilled(folder: Path, engine: str) -> list[KernelRow]:
    """The distilled curves of one engine from `folder`, FAMILY/ENGINE/VERSION/*.parquet of one
    device. InputError if there are none.
    """
    kept = []
    for measured in MEASURED:
        found: dict[Key, list[tuple[str, KernelCurve]]] = {}
        for source in ("nccl",) if measured.kind == "nccl" else (engine,):
            paths = [
                path
                for suffix in FORMATS
                for path in folder.glob(f"*/{source}/*/{measured.stem}{suffix}")
            ]
            for path in sorted(paths, key=lambda each: version_key(each.parent.name)):
                for key, curve in _curves(path, measured):
                    found.setdefault(key, []).append((path.parent.name, curve))
        for key, versions in sorted(found.items()):
            for version, curve in _differing(versions):
                kind, dtype, shape = key
                tolerance = ROUGH.get(kind, TOLERANCE)
                kept.append(KernelRow(kind, dtype, version, shape, thinned(curve, tolerance)))
    if not kept:
        raise InputError("no measured kernels", where=str(folder), value=engine)
    return kept


def thinned(curve: KernelCurve, tolerance: float = TOLERANCE) -> KernelCurve:
    """The curve without points that the line between their neighbours hits within the tolerance."""
    x, us = curve
    keep = np.zeros(len(x), bool)
    keep[[0, -1]] = True
    spans = [(0, len(x) - 1)]
    while spans:
        first, last = spans.pop()
        if last - first < 2:
            continue
        inside = slice(first + 1, last)
        line = np.interp(x[inside], x[[first, last]], us[[first, last]])
        off = np.abs(line / us[inside] - 1)
        worst = int(off.argmax())
        if off[worst] > tolerance:
            middle = first + 1 + worst
            keep[middle] = True
            spans += [(first, middle), (middle, last)]
    return KernelCurve(x[keep], us[keep])


def write_tables(path: Path, rows: Iterable[KernelRow]) -> None:
    """Write the curves as compressed numpy arrays, which can be read with numpy alone.

    There are columns of numbered words, and numbers of all rows in one array with the end of each
    row's.
    """
    listed = list(rows)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name in WORDS:
        words, numbers = np.unique([getattr(row, name) for row in listed], return_inverse=True)
        arrays[f"{name}_words"] = words
        arrays[name] = numbers.astype(np.int16)
    us = np.concatenate([row.curve.us for row in listed]).astype(np.float32).view(np.uint32)
    rounded = ((us + HALF) & MANTISSA).view(np.uint8).reshape(-1, 4)
    arrays["us_bytes"] = np.ascontiguousarray(rounded.T)  # alike bytes side by side pack tighter
    arrays["x"] = np.concatenate([row.curve.x for row in listed]).astype(np.int32)
    arrays["shape"] = np.concatenate([np.array(row.shape, np.int32) for row in listed])
    arrays["points"] = np.array([len(row.curve.x) for row in listed], np.int16)
    arrays["sizes"] = np.array([len(row.shape) for row in listed], np.int8)
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _curves(path: Path, measured: MeasuredKernel) -> Iterator[tuple[Key, KernelCurve]]:
    """Every curve of one file, along ascending x."""
    columns = _columns(path, measured)
    if columns is None:
        return
    names, dtype, shape, x, us, part = columns
    order = np.lexsort((us, part, x, *shape[::-1], dtype))
    keys = np.stack([dtype, *shape, x, part])[:, order]
    quickest = np.ones(len(order), bool)
    quickest[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    keys, us = keys[:, quickest], us[order][quickest]
    points, starts = np.unique(keys[:-1], axis=1, return_inverse=True)
    whole = np.bincount(starts.ravel(), us)
    if measured.parts is not None:
        halves = np.bincount(starts.ravel())
        points, whole = points[:, halves == 2], whole[halves == 2]
    edges = np.flatnonzero((points[:-1, 1:] != points[:-1, :-1]).any(axis=0)) + 1
    for span in np.split(np.arange(points.shape[1]), edges):
        if len(span):
            dtype_at, *sizes = points[:-1, span[0]].tolist()
            key = measured.kind, names[dtype_at], tuple(sizes)
            yield key, KernelCurve(points[-1, span], whole[span])


def _read(path: Path) -> "pa.Table":
    """The measurements of a file; InputError where it is not of its kind."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    try:
        return pyarrow.csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
    except pa.ArrowException as error:
        (said, *_) = str(error).splitlines()
        raise InputError("the measurements cannot be read", where=str(path), value=said) from None


def _dtypes(table: "pa.Table", measured: MeasuredKernel) -> "tuple[Any, list[str]]":
    """The dtype of each row as a number, and the name of each number."""
    if not measured.dtype:
        return np.zeros(table.num_rows, np.int64), [""]
    columns = (table[name].to_pylist() for name in measured.dtype)
    joined = np.array(["/".join(words) for words in zip(*columns, strict=True)])
    names, numbers = np.unique(joined, return_inverse=True)
    return numbers, [str(name) for name in names]


def _columns(
    path: Path, measured: MeasuredKernel
) -> "tuple[list[str], Any, list[Any], Any, Any, Any] | None":
    """(dtype names, then arrays of the selected rows: dtype index, shape columns, x, us, part
    index). None if no row is selected. InputError for a file that lacks a column.
    """
    import pyarrow as pa

    table = _read(path)
    times = measured.latency.split("+")
    needed = {*measured.dtype, *measured.shape, measured.x, *times}
    for name in sorted(needed - set(table.column_names)):
        if name in DEFAULTS:
            table = table.append_column(name, pa.array([DEFAULTS[name]] * table.num_rows))
    missing = sorted(needed - set(table.column_names))
    if missing:
        raise InputError(
            f"the table lacks {', '.join(missing)}",
            where=str(path),
            value=", ".join(table.column_names),
        )
    dtype, names = _dtypes(table, measured)
    rows = np.ones(table.num_rows, bool)
    for name, values in measured.only:
        if name in table.column_names:
            rows &= np.isin(
                table[name].to_numpy(zero_copy_only=False).astype(str), [*map(str, values)]
            )
    us = sum(table[name].to_numpy() for name in times) * measured.unit_us
    x = table[measured.x].to_numpy() + measured.origin
    rows &= np.isfinite(us) & (us > 0) & (x > 0)
    if not rows.any():
        return None
    shape = [table[name].to_numpy()[rows].astype(np.int64) for name in measured.shape]
    part = np.zeros(table.num_rows, np.int64)
    if measured.parts is not None:
        column, word = measured.parts
        part[:] = [word in value for value in table[column].to_pylist()]
    return names, dtype[rows], shape, x[rows].astype(np.int64), us[rows], part[rows]


def _differing(versions: list[tuple[str, KernelCurve]]) -> Iterator[tuple[str, KernelCurve]]:
    """The newest version's curve, and older ones that differ from the next one taken.

    Versions are left out with less than half the points of the fullest, or SPOILED times as slow as
    the quickest.
    """
    fullest = max(len(curve.x) for _, curve in versions)
    whole = [each for each in versions if 2 * len(each[1].x) >= fullest]
    whole = [each for each in whole if not any(_slower(each[1], other[1]) for other in whole)]
    kept = whole[-1]
    yield kept
    for older in reversed(whole[:-1]):
        common, old, new = np.intersect1d(older[1].x, kept[1].x, return_indices=True)
        if len(common):
            ratio = older[1].us[old] / kept[1].us[new]
            if np.median(np.abs(ratio - 1)) < DIFFERS:
                continue
        kept = older
        yield kept


def _slower(curve: KernelCurve, other: KernelCurve) -> bool:
    """Whether a curve is so far above another version's that something else was measured."""
    _, one, two = np.intersect1d(curve.x, other.x, return_indices=True)
    return len(one) > 0 and bool(np.median(curve.us[one] / other.us[two]) > SPOILED)
