"""The books of several replicas as one: their pools side by side, their requests together."""

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvsim.memory.ledger import CLASSES
from kvsim.results.departed import Finished
from kvsim.results.recorder import SERIES_COLUMNS, Recorder

Rows = NDArray[np.int64]
FIRST = SERIES_COLUMNS.index(f"{CLASSES[0]}_bytes")
LAST = FIRST + len(CLASSES)
HELD = ("used", "reserved", "overprovisioned", "rounding", "transient")
IDLE, METADATA = CLASSES.index("idle"), CLASSES.index("metadata")


def merged(recorders: Sequence[Recorder]) -> Recorder:
    """One recorder for replicas of one clock. Sums are exact; the series has a row from each moment
    at which some replica's has one to the next, and is linear in between.
    """
    if len(recorders) == 1:
        return recorders[0]
    found = Recorder(sum(each.capacity_bytes for each in recorders))
    begins = [each.first_arrival_ps for each in recorders if each.first_arrival_ps >= 0]
    rows = [_rows(each) for each in recorders]
    ends = [int(each[-1, 1]) for each in rows if len(each)]
    found.first_arrival_ps = min(begins, default=-1)
    found.end_ps = max(each.end_ps for each in recorders)
    if ends:
        _books(
            found, recorders, rows, min(int(each[0, 0]) for each in rows if len(each)), max(ends)
        )
    for each in recorders:
        found.steps += each.steps
        found.outside_steps += each.outside_steps
        found.running_sum += each.running_sum
        found.waiting_sum += each.waiting_sum
        found.saved_sum += each.saved_sum
        found.gaps.extend(each.gaps)
        found.late_gaps.extend(each.late_gaps)
        found.rejected += each.rejected
        found.failures += each.failures
        if each.tier_hits is not None:
            found.tier_hits = (found.tier_hits or {}) | each.tier_hits
        for at, total in enumerate(each.part_sums):
            found.part_sums[at] += total
        for at, total in enumerate(each.step_sum):
            found.step_sum[at] += total
    _departures(found, recorders)
    return found


def _rows(recorder: Recorder) -> Rows:
    return np.frombuffer(recorder.series, dtype=np.int64).reshape(-1, len(SERIES_COLUMNS))


def _filled(recorder: Recorder, rows: Rows, start: int, end: int) -> tuple[Rows, list[int]]:
    """The rows of a replica from start to end without gaps, and for each the number of its own row,
    -1 for those in which nothing was booked: its pool was empty.
    """
    metadata = int(rows[0, FIRST + METADATA]) if len(rows) else 0
    usage = [0] * len(CLASSES)
    usage[METADATA], usage[IDLE] = metadata, recorder.capacity_bytes - metadata
    found, numbers, at = [], [], start
    for number, row in enumerate(rows):
        if row[0] > at:
            found.append(np.array([at, row[0], 0, 0, 0, *usage, *usage]))
            numbers.append(-1)
        if row[1] > row[0]:
            found.append(row)
            numbers.append(number)
        at = max(at, int(row[1]))
    if at < end:
        found.append(np.array([at, end, 0, 0, 0, *usage, *usage]))
        numbers.append(-1)
    return np.array(found), numbers


def _books(
    found: Recorder, recorders: Sequence[Recorder], rows: Sequence[Rows], start: int, end: int
) -> None:
    """The ledger over time."""
    filled = [_filled(each, own, start, end) for each, own in zip(recorders, rows, strict=True)]
    edges = np.unique(np.concatenate([own[:, :2].ravel() for own, _ in filled]))
    series = np.zeros((len(edges) - 1, len(SERIES_COLUMNS)), dtype=np.int64)
    series[:, 0], series[:, 1] = edges[:-1], edges[1:]
    for recorder, (own, numbers) in zip(recorders, filled, strict=True):
        at = np.searchsorted(own[:, 0], edges[:-1], "right") - 1
        mine = own[at]
        length = (mine[:, 1] - mine[:, 0]).astype(float)
        first, last = mine[:, FIRST:LAST], mine[:, LAST:]
        for column, edge in ((FIRST, edges[:-1]), (LAST, edges[1:])):
            share = ((edge - mine[:, 0]) / length)[:, None]
            series[:, column : column + len(CLASSES)] += np.rint(
                first + (last - first) * share
            ).astype(np.int64)
        series[:, 2] += np.where(edges[:-1] == mine[:, 0], mine[:, 2], 0)
        series[:, 3:5] += mine[:, 3:5]
        empty = own[np.array(numbers) < 0]
        for index, total in enumerate(recorder.time_sum):
            lasts = empty[:, 1] - empty[:, 0]
            found.time_sum[index] += total + int((empty[:, FIRST + index] * lasts).sum())
        for name, held in recorder.part_series.items():
            values = np.append(np.array(held, dtype=np.int64), 0)
            row = np.array(numbers)[at]
            shown = np.where((row >= 0) & (row < len(held)), values[np.minimum(row, len(held))], 0)
            before = np.array(found.part_series.get(name, array("q", bytes(8 * len(series)))))
            found.part_series[name] = array("q", (before + shown).tolist())
    for column in (FIRST, LAST):  # rounding apart, the classes sum to the capacity
        part = series[:, column : column + len(CLASSES)]
        part[:, IDLE] += found.capacity_bytes - part.sum(axis=1)
    found.series.frombytes(series.tobytes())
    found.total_ps = end - start
    both = np.concatenate([series[:, FIRST:LAST], series[:, LAST:]])
    found.peak_used = int(both[:, CLASSES.index("used")].max())
    found.peak_allocated = int(both[:, [CLASSES.index(name) for name in HELD]].sum(axis=1).max())
    lasts = series[:, 1] - series[:, 0]
    means = (series[:, FIRST:LAST] + series[:, LAST:]) / 2.0
    sums = np.vstack([np.zeros(len(CLASSES)), np.cumsum(means * lasts[:, None], axis=0)])[:-1]
    marks = np.stack([series[:, 0], series[:, 3], series[:, 0] - start], axis=1)
    found.marks.frombytes(np.ascontiguousarray(marks).tobytes())
    found.mark_sums.frombytes(np.ascontiguousarray(sums).tobytes())


def _departures(found: Recorder, recorders: Sequence[Recorder]) -> None:
    """The sequences that finished, in the order of their end."""
    moments = np.concatenate([np.frombuffer(each.finish_ps, dtype=np.int64) for each in recorders])
    order = np.argsort(moments, kind="stable")
    found.finish_ps.frombytes(moments[order].tobytes())
    found.finished = Finished.together([each.finished for each in recorders], order.tolist())
