"""The books of several replicas as one: their pools side by side, their requests together."""

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvsim.memory.ledger import CLASSES, IDLE
from kvsim.results.class_sums import weighted_sums
from kvsim.results.departed import Finished
from kvsim.results.recorder import Recorder
from kvsim.results.series import SERIES_COLUMNS

Rows = NDArray[np.int64]
FIRST = SERIES_COLUMNS.index(f"{CLASSES[0]}_bytes")
LAST = FIRST + len(CLASSES)
HELD = ("used", "reserved", "overprovisioned", "rounding", "transient")
METADATA = CLASSES.index("metadata")


class MergedRecorder(Recorder):
    """A recorder whose series is linear between its rows. time_totals, step_totals: of each class,
    exact. time_before: (rows, classes) bytes * ps before each row, as the series has them.
    """

    def __init__(self, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes)
        self.time_totals = [0] * len(CLASSES)
        self.step_totals = [0] * len(CLASSES)
        self.time_before = np.zeros((0, len(CLASSES)))

    @property
    def time_sum(self) -> list[int]:
        return self.time_totals

    @property
    def step_sum(self) -> list[int]:
        return self.step_totals

    def time_sum_before(self, row: int) -> list[int]:
        if row >= len(self.time_before):
            return self.time_totals
        return [round(total) for total in self.time_before[row].tolist()]


def merged(recorders: Sequence[Recorder]) -> Recorder:
    """One recorder for replicas of one clock. Sums are exact; the series has a row from each moment
    at which some replica's has one to the next, and is linear in between.
    """
    if len(recorders) == 1:
        return recorders[0]
    found = MergedRecorder(sum(each.capacity_bytes for each in recorders))
    begins = [each.first_arrival_ps for each in recorders if each.first_arrival_ps >= 0]
    rows = [each.rows() for each in recorders]
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
        for sums, own in (
            (found.part_sums, each.part_sums),
            (found.time_totals, each.time_sum),
            (found.step_totals, each.step_sum),
        ):
            for at, total in enumerate(own):
                sums[at] += total
    _departures(found, recorders)
    return found


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
    found: MergedRecorder, recorders: Sequence[Recorder], rows: Sequence[Rows], start: int, end: int
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
        (nothing,) = weighted_sums(empty[:, FIRST:LAST], [empty[:, 1] - empty[:, 0]])
        for place, total in enumerate(nothing):
            found.time_totals[place] += total
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
    found.time_before = sums
    found.marks.extend(range(len(series)))
    found.num_rows = len(series)


def _departures(found: Recorder, recorders: Sequence[Recorder]) -> None:
    """The sequences that finished, in the order of their end."""
    moments = np.concatenate([np.frombuffer(each.finish_ps, dtype=np.int64) for each in recorders])
    order = np.argsort(moments, kind="stable")
    found.finish_ps.frombytes(moments[order].tobytes())
    found.finished = Finished.together([each.finished for each in recorders], order.tolist())
