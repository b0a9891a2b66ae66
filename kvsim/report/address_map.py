"""Data of the page's address map: a rectangle in time and addresses for each allocated span.

A stay is a span of addresses that one request holds for a span of time. If a run has too many, the
page gets a raster picture of all stays, and the single stays around the fullest moment.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S
from kvsim.report import painting
from kvsim.report.packing import packed, packed_differences, packed_floats
from kvsim.report.painting import Rectangles, painted
from kvsim.results import addresses
from kvsim.results.result import Result, Run

MOST_STAYS = 450_000  # of all runs together: about two bytes each
TICKS = 2**26  # a map's time, in equal parts
COLUMNS, ROWS = 900, 360  # of the picture
NOBODY = 2**32 - 1
MOST_POINTS = 2000
_COUNTED = ("radix",)  # pages without numbers: `kvsim.engine.addresses.page_log` gives them some
_BUFFERED = ("max-buffer", "doubling")  # one buffer a sequence, its valid slots first
_AT_ONCE = 1 << 18  # stays painted together: few enough that memory is used again


class Columns(NamedTuple):
    """(n,) arrays of n stays, spans of memory that a request holds.

    address, units: first address and length in allocation units. start, end: in ticks. owner: index
    of the request. kept: whether the content is only cached.
    """

    address: NDArray[np.int64]
    units: NDArray[np.int64]
    start: NDArray[np.int32]
    end: NDArray[np.int32]
    owner: NDArray[np.int64]
    kept: NDArray[np.bool_]


def address_maps(result: Result, places: tuple[dict[str, int], ...]) -> list[dict[str, Any] | None]:
    """The map data of each run, for the page's scripts.

    None for a run without recorded addresses, without stays, or in which tokens take no memory.

    places: for each run, row number on the page by request id.
    """
    tables = [_with_bytes(run.table("addresses")) for run in result.runs]
    traced = sum(1 for table in tables if table is not None and len(table))
    share = MOST_STAYS // max(traced, 1)
    # What runs with few stays leave, the others may have.
    spare = sum(max(share - len(table), 0) for table in tables if table is not None and len(table))
    crowded = sum(1 for table in tables if table is not None and len(table) > share)
    most = share + spare // max(crowded, 1)
    return [
        None if table is None or not len(table) else _map(run, table, where, most)
        for run, table, where in zip(result.runs, tables, places, strict=True)
    ]


def _with_bytes(stays: pd.DataFrame | None) -> pd.DataFrame | None:
    """The stays; None if no stay takes memory."""
    return stays if stays is not None and stays["num_bytes"].any() else None


def _map(run: Run, stays: pd.DataFrame, places: dict[str, int], most: int) -> dict[str, Any]:
    memory = run.summary.memory
    capacity = memory.capacity_bytes
    address, num_bytes = (stays[name].to_numpy(np.int64) for name in ("address", "num_bytes"))
    unit = int(np.gcd(np.gcd.reduce(address), np.gcd.reduce(num_bytes)))
    cut = len(stays) >= addresses.MOST_STAYS
    span_ps = int(stays["end_ps"].max())
    if not cut:
        span_ps = max(span_ps, int(run.memory["end_ps"].max()))
    start, end = (_ticks(stays[name].to_numpy(), span_ps) for name in ("start_ps", "end_ps"))
    names = stays["request"].cat.categories
    # Requests that the list leaves out are numbered beyond it: they have a colour and no name.
    beyond = len(places)
    place_of = np.array([places.get(str(name), beyond + at) for at, name in enumerate(names)])
    codes = stays["request"].cat.codes.to_numpy()
    kept = (stays["kind"] == "cached").to_numpy()

    def columns(some: slice | NDArray[np.bool_]) -> Columns:
        return Columns(
            address[some] // unit,
            num_bytes[some] // unit,
            start[some],
            end[some],
            place_of[codes[some]],
            kept[some],
        )

    drawn: dict[str, Any] = {
        "capacity_bytes": capacity,
        "token_bytes": capacity // max(memory.capacity_tokens, 1),
        "unit_bytes": unit,
        "span_s": span_ps / PS_PER_S,
        "ticks": TICKS,
        "buffers": run.kind in _BUFFERED,
        "counted": run.kind in _COUNTED,
        "num_stays": len(stays),
        "cut": cut,
        "holes": _holes(run),
    }
    shown: slice | NDArray[np.bool_] = slice(None)
    if len(stays) > most:
        low, high = _fullest(start, end, most)
        parts = (columns(slice(at, at + _AT_ONCE)) for at in range(0, len(stays), _AT_ONCE))
        drawn["picture"] = _picture(parts, max(capacity // unit, 1))
        drawn["detail"] = [low, high]
        shown = (end >= low) & (start <= high)
    drawn_columns = columns(shown)
    return {**drawn, "num": len(drawn_columns.address), **_packed(drawn_columns)}


def _ticks(times_ps: NDArray[np.int64], span_ps: int) -> NDArray[np.int32]:
    """(n,) times in ticks, of which the whole run of span_ps has TICKS."""
    ticks = np.empty(len(times_ps), dtype=np.int32)
    np.multiply(times_ps, TICKS / span_ps, out=ticks, casting="unsafe")  # as floats, some at a time
    return ticks


def _packed(columns: Columns) -> dict[str, str]:
    """Stays sorted by start and packed as text. Starts and ends are indices into the distinct
    times, of which there are few.
    """
    # Neighbours are alike, and shrink.
    order = np.lexsort((columns.address, columns.owner, columns.start))
    address, units, start, end, owner, kept = (column[order] for column in columns)
    times, places = np.unique(np.concatenate([start, end]), return_inverse=True)
    start, end = places[: len(order)], places[len(order) :]
    return {
        "times": packed_differences(times),
        "address": packed(address),
        "units": packed(units),
        "start": packed_differences(start),
        "length": packed(end - start),
        "owner": packed(owner),
        "kept": packed(kept),
    }


def _fullest(start: NDArray[np.int32], end: NDArray[np.int32], most: int) -> tuple[int, int]:
    """The (first, last) tick of the widest interval that overlaps at most `most` stays, centred on
    the moment with the most stays.

    start: (n,) ascending ticks. end: (n,) ticks.
    """
    ends = np.sort(end)
    last = np.append(np.flatnonzero(start[1:] != start[:-1]), len(start) - 1)  # of each moment
    moments = start[last]
    middle = int(moments[(last + 1 - np.searchsorted(ends, moments)).argmax()])

    def num_within(half: int) -> int:
        # Of the type of the ticks: numpy would otherwise copy all of them.
        first, past = np.array((middle - half, middle + half), dtype=np.int32)
        return int(np.searchsorted(start, past, side="right") - np.searchsorted(ends, first))

    low, high = 0, TICKS
    while low < high:
        half = (low + high + 1) // 2
        low, high = (half, high) if num_within(half) <= most else (low, half - 1)
    return max(middle - low, 0), min(middle + low, TICKS)


def _picture(parts: Iterable[Columns], units: int) -> dict[str, Any]:
    """A raster of COLUMNS x ROWS cells: 2 x index of the owning request, plus 1 if the content is
    cached.
    """
    rectangles = (
        Rectangles(
            part.start / TICKS,
            part.end / TICKS,
            part.address / units,
            (part.address + part.units) / units,
            2 * part.owner + part.kept,
        )
        for part in parts
    )
    cells = painted(rectangles, COLUMNS, ROWS)
    cells = np.where(cells == painting.NOBODY, NOBODY, cells)
    return {"columns": COLUMNS, "rows": ROWS, "cells": packed(cells.ravel())}


def _holes(run: Run) -> dict[str, Any] | None:
    """Size of the largest hole and bytes needed by the head of the queue, at the moments of worst
    external fragmentation.
    """
    table = run.table("holes")
    if table is None or table.empty:
        return None
    time, largest, need = (table[name].to_numpy(np.float64) for name in table.columns)
    if len(time) > MOST_POINTS:
        buckets = np.linspace(0, len(time), MOST_POINTS + 1).astype(int)
        ratio = largest - need
        picks = np.array([a + int(ratio[a:b].argmin()) for a, b in pairwise(buckets)])
        time, largest, need = time[picks], largest[picks], need[picks]
    return {
        "num": len(time),
        "time_s": packed_floats(time / PS_PER_S),
        "largest_bytes": packed_floats(largest),
        "need_bytes": packed_floats(need),
    }
