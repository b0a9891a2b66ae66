"""The address map for the page: every stay in the pool, or where they are too many a picture of all
of them and every stay around the fullest moment.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S
from kvsim.report import painting
from kvsim.report.packing import packed, packed_differences, packed_floats
from kvsim.report.painting import painted
from kvsim.results import addresses
from kvsim.results.result import Result, Run

MOST_STAYS = 450_000  # of all runs together: about two bytes each
TICKS = 2**26  # a map's time, in equal parts
COLUMNS, ROWS = 900, 360  # of the picture
NOBODY = 2**32 - 1
MOST_POINTS = 2000
_COUNTED = ("radix",)  # pages without numbers: `kvsim.engine.addresses.page_log` gives them some
_BUFFERED = ("max-buffer", "doubling")  # one buffer a sequence, its valid slots first


def address_maps(result: Result, places: tuple[dict[str, int], ...]) -> list[dict[str, Any] | None]:
    """The data that the scripts draw, one each run; None for runs not traced or without stays.

    places: of each request in the page's list of that run.
    """
    tables = [run.table("addresses") for run in result.runs]
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


def _map(run: Run, stays: pd.DataFrame, places: dict[str, int], most: int) -> dict[str, Any]:
    memory = run.summary.memory
    capacity = memory.capacity_bytes
    address, num_bytes = (stays[name].to_numpy(np.int64) for name in ("address", "num_bytes"))
    unit = int(np.gcd(np.gcd.reduce(address), np.gcd.reduce(num_bytes)))
    cut = len(stays) >= addresses.MOST_STAYS
    span_ps = int(stays["end_ps"].max())
    if not cut:
        span_ps = max(span_ps, int(run.memory["end_ps"].max()))
    start, end = (
        (stays[name].to_numpy(np.float64) * (TICKS / span_ps)).astype(np.int64)
        for name in ("start_ps", "end_ps")
    )
    names = stays["request"].cat.categories
    # Requests that the list leaves out are numbered beyond it: they have a colour and no name.
    beyond = len(places)
    place_of = np.array([places.get(str(name), beyond + at) for at, name in enumerate(names)])
    owner = place_of[stays["request"].cat.codes.to_numpy()]
    kept = (stays["kind"] == "cached").to_numpy()
    columns = np.stack([address // unit, num_bytes // unit, start, end, owner, kept])
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
    if len(stays) > most:
        low, high = _fullest(start, end, most)
        drawn["picture"] = _picture(columns, max(capacity // unit, 1))
        drawn["detail"] = [low, high]
        columns = columns[:, (end >= low) & (start <= high)]
    return {**drawn, "num": columns.shape[1], **_packed(columns)}


def _packed(columns: NDArray[np.int64]) -> dict[str, str]:
    """The stays by their starts; times are places among all moments, of which there are few."""
    address, _, start, _, owner, _ = columns
    order = np.lexsort((address, owner, start))  # neighbours are alike, and shrink
    address, units, start, end, owner, kept = columns[:, order]
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


def _fullest(start: NDArray[np.int64], end: NDArray[np.int64], most: int) -> tuple[int, int]:
    """The longest time around the moment with the most stays that holds at most `most` of them."""
    starts, ends = np.sort(start), np.sort(end)
    here = np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts)
    middle = int(starts[here.argmax()])

    def num_within(half: int) -> int:
        begun = np.searchsorted(starts, middle + half, side="right")
        return int(begun - np.searchsorted(ends, middle - half))

    low, high = 0, TICKS
    while low < high:
        half = (low + high + 1) // 2
        low, high = (half, high) if num_within(half) <= most else (low, half - 1)
    return max(middle - low, 0), min(middle + low, TICKS)


def _picture(columns: NDArray[np.int64], units: int) -> dict[str, Any]:
    """The owner of each of COLUMNS x ROWS cells: twice its place, plus one where it is cached."""
    address, size, start, end, owner, kept = columns
    sides = (start / TICKS, end / TICKS, address / units, (address + size) / units)
    cells = painted(*sides, 2 * owner + kept, COLUMNS, ROWS)
    cells = np.where(cells == painting.NOBODY, NOBODY, cells)
    return {"columns": COLUMNS, "rows": ROWS, "cells": packed(cells.ravel())}


def _holes(run: Run) -> dict[str, Any] | None:
    """Bytes that the head of the queue needed and of the largest hole, at the worst moments."""
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
