"""Merge the records of several replicas into one: their pools added up, their requests together.

Sums are exact. The series over time is not. A row of a replica has the ledger at its two ends; if
another replica's row begins in between, the value is interpolated. So nothing of the summary is
taken from the merged series, as it would depend on how many steps were taken at once.
"""

from array import array
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kvsim.memory.ledger import CLASSES, IDLE
from kvsim.results.departed import Finished
from kvsim.results.recorder import Recorder
from kvsim.results.series import SERIES_COLUMNS

Rows = NDArray[np.int64]
FIRST = SERIES_COLUMNS.index(f"{CLASSES[0]}_bytes")
LAST = FIRST + len(CLASSES)
METADATA = CLASSES.index("metadata")
STEPS, RUNNING, WAITING = (
    SERIES_COLUMNS.index(name) for name in ("steps", "num_running", "num_waiting")
)
ADDED = ("steps", "outside_steps", "running_sum", "waiting_sum", "saved_sum")


class Pool:
    """One replica's rows from start_ps to end_ps without gaps; its pool was empty while it recorded
    nothing. numbers: index of each row in the replica's records; -1: nothing recorded.
    """

    def __init__(self, recorder: Recorder, start_ps: int, end_ps: int) -> None:
        self.recorder, self.start_ps, self.end_ps = recorder, start_ps, end_ps
        own = recorder.rows()
        numbers = np.flatnonzero(own[:, 1] > own[:, 0])
        own = own[numbers]
        starts = np.concatenate([[start_ps], own[:, 1]])
        ends = np.concatenate([own[:, 0], [end_ps]])
        gaps = np.flatnonzero(ends > starts)
        empty = np.zeros((len(gaps), len(SERIES_COLUMNS)), dtype=np.int64)
        empty[:, 0], empty[:, 1] = starts[gaps], ends[gaps]
        for column in (FIRST, LAST):
            empty[:, column : column + len(CLASSES)] = self.unused
        rows = np.concatenate([own, empty])
        order = np.argsort(rows[:, 0], kind="stable")
        self.rows: Rows = rows[order]
        self.numbers = np.concatenate([numbers, np.full(len(gaps), -1)])[order]
        self._empty = empty

    @cached_property
    def unused(self) -> list[int]:
        """Bytes of each class while no sequence is present."""
        own = self.recorder.rows()
        metadata = int(own[0, FIRST + METADATA]) if len(own) else 0
        usage = [0] * len(CLASSES)
        usage[METADATA], usage[IDLE] = metadata, self.recorder.capacity_bytes - metadata
        return usage

    @cached_property
    def moments(self) -> NDArray[np.int64]:
        """Times of the marks, when sequences arrived or left."""
        marks = np.frombuffer(self.recorder.marks, dtype=np.int64)
        found: NDArray[np.int64] = self.recorder.rows()[marks, 0]
        return found

    def time_sum(self) -> list[int]:
        """Bytes * ps of each class from start_ps to end_ps."""
        return self._with_empty(self.recorder.time_sum, self.end_ps)

    def before(self, moment_ps: int) -> tuple[list[int], int]:
        """Bytes * ps of each class, and of all, up to the last mark that is not after moment_ps.

        Before the first and after the last row nothing changes, and every time is a mark.
        """
        own = self.recorder.rows()
        nothing = [0] * len(CLASSES)
        if not len(own) or moment_ps <= own[0, 0]:
            return self._until(nothing, moment_ps)
        if moment_ps >= own[-1, 1]:
            return self._until(self.recorder.time_sum, moment_ps)
        at = int(np.searchsorted(self.moments, moment_ps, "right")) - 1
        if at < 0:
            return self._until(nothing, int(own[0, 0]))
        booked = self.recorder.time_sum_before(self.recorder.marks[at])
        return self._until(booked, int(self.moments[at]))

    def _until(self, booked: list[int], moment_ps: int) -> tuple[list[int], int]:
        capacity = self.recorder.capacity_bytes
        return self._with_empty(booked, moment_ps), capacity * (moment_ps - self.start_ps)

    def _with_empty(self, booked: list[int], moment_ps: int) -> list[int]:
        ends = np.minimum(self._empty[:, 1], moment_ps)
        empty_ps = sum(np.maximum(ends - self._empty[:, 0], 0).tolist())
        return [total + each * empty_ps for total, each in zip(booked, self.unused, strict=True)]

    def at(self, edges: NDArray[np.int64]) -> Rows:
        """Rows between each two neighbouring edges, with the ledger at these. Bytes are rounded
        down except in class idle, so that none is negative; steps are those that begin there.
        """
        place = np.searchsorted(self.rows[:, 0], edges[:-1], "right") - 1
        mine = self.rows[place]
        found = mine.copy()
        found[:, 0], found[:, 1] = edges[:-1], edges[1:]
        found[:, STEPS] = np.where(edges[:-1] == mine[:, 0], mine[:, STEPS], 0)
        length = (mine[:, 1] - mine[:, 0]).astype(float)
        first, last = mine[:, FIRST:LAST], mine[:, LAST:]
        for column, edge in ((FIRST, edges[:-1]), (LAST, edges[1:])):
            share = ((edge - mine[:, 0]) / length)[:, None]
            part = first + np.floor((last - first) * share).astype(np.int64)
            part[:, IDLE] += self.recorder.capacity_bytes - part.sum(axis=1)
            found[:, column : column + len(CLASSES)] = part
        return found

    def parts_at(self, edges: NDArray[np.int64], held: "array[int]") -> NDArray[np.int64]:
        """Bytes of a part of a class in the first step of the row that contains each edge."""
        place = np.searchsorted(self.rows[:, 0], edges[:-1], "right") - 1
        row = self.numbers[place]
        values = np.append(np.array(held, dtype=np.int64), 0)
        booked = (row >= 0) & (row < len(held))
        return np.where(booked, values[np.minimum(row, len(held))], 0)


class MergedRecorder(Recorder):
    """The recorder of several replicas. Peaks are the highest of any replica."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        super().__init__(sum(each.capacity_bytes for each in recorders))
        self._parts = tuple(recorders)
        begins = [each.first_arrival_ps for each in recorders if each.first_arrival_ps >= 0]
        self.first_arrival_ps = min(begins, default=-1)
        self.end_ps = max(each.end_ps for each in recorders)
        for each in recorders:
            for name in ADDED:
                setattr(self, name, getattr(self, name) + getattr(each, name))
            self.part_sums = [sum(two) for two in zip(self.part_sums, each.part_sums, strict=True)]
            self.gaps.extend(each.gaps)
            self.late_gaps.extend(each.late_gaps)
            self.rejected += each.rejected
            self.failures += each.failures
            if each.tier_hits is not None:
                self.tier_hits = (self.tier_hits or {}) | each.tier_hits
        self._pools: list[Pool] = []
        used = [each.rows() for each in recorders if each.num_rows]
        if used:
            start_ps = min(int(each[0, 0]) for each in used)
            end_ps = max(int(each[-1, 1]) for each in used)
            self.total_ps = end_ps - start_ps
            self._pools = [Pool(each, start_ps, end_ps) for each in recorders]
            self._show()
        self._depart()

    def _show(self) -> None:
        """Merge the ledgers over time: one row from each time at which some replica has one."""
        pools = self._pools
        edges = np.unique(np.concatenate([pool.rows[:, :2].ravel() for pool in pools]))
        series = np.zeros((len(edges) - 1, len(SERIES_COLUMNS)), dtype=np.int64)
        for pool in pools:
            series += pool.at(edges)
            for name, held in pool.recorder.part_series.items():
                before = np.array(self.part_series.get(name, array("q", bytes(8 * len(series)))))
                shown = before + pool.parts_at(edges, held)
                self.part_series[name] = array("q", shown.tolist())
        series[:, 0], series[:, 1] = edges[:-1], edges[1:]
        self.series.frombytes(series.tobytes())
        self.num_rows = len(series)
        moments = np.unique(np.concatenate([pool.moments for pool in pools]))
        self.marks.frombytes(np.searchsorted(edges, moments).astype(np.int64).tobytes())

    def _depart(self) -> None:
        """Merge the finished sequences in the order of their end."""
        parts = self._parts
        moments = np.concatenate([np.frombuffer(each.finish_ps, dtype=np.int64) for each in parts])
        order = np.argsort(moments, kind="stable")
        self.finish_ps.frombytes(moments[order].tobytes())
        self.finished = Finished.together([each.finished for each in parts], order.tolist())

    @property
    def peaks(self) -> tuple[float, float]:
        found = [each.peaks for each in self._parts]
        return max(used for used, _ in found), max(allocated for _, allocated in found)

    @property
    def pool_steps(self) -> int:
        return sum(each.pool_steps for each in self._parts)

    @property
    def time_sum(self) -> list[int]:
        return _sums([pool.time_sum() for pool in self._pools])

    @property
    def step_sum(self) -> list[int]:
        return _sums([each.step_sum for each in self._parts])

    def time_sum_before(self, row: int) -> list[int]:
        """Bytes * ps of each class, each replica up to its own last mark before `row`."""
        moment_ps = int(self.rows()[row, 0])
        return _sums([pool.before(moment_ps)[0] for pool in self._pools])

    def pool_sum_before(self, row: int) -> int:
        moment_ps = int(self.rows()[row, 0])
        return sum(pool.before(moment_ps)[1] for pool in self._pools)


def _sums(parts: Sequence[Sequence[int]]) -> list[int]:
    return [sum(each) for each in zip([0] * len(CLASSES), *parts, strict=True)]


def merged(recorders: Sequence[Recorder]) -> Recorder:
    """One recorder for several replicas on one clock."""
    return recorders[0] if len(recorders) == 1 else MergedRecorder(recorders)
