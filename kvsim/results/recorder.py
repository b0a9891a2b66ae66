"""The recorder of a run: flat integers, with no entry for each token.

The ledger is integrated exactly: over time (each step weighs its duration) and over steps (each
weighs one, as the PagedAttention paper averages).
"""

from array import array
from collections.abc import Iterable
from struct import Struct
from typing import Final

import numpy as np
from mypy_extensions import mypyc_attr

from kvsim.memory.ledger import Course, Usage, allocated, check_sum, filed, usage_of
from kvsim.memory.parts import NO_PARTS, PARTS, Parts
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import seconds_from_ps
from kvsim.request import Request
from kvsim.results.class_sums import ClassSums, Integers, Moved, class_sums
from kvsim.results.departed import Finished
from kvsim.results.series import LOW_BITS, MOVE_COLUMNS, SERIES_COLUMNS
from kvsim.results.tier_hits import TierHits
from kvsim.sequence import Sequence

# Rows as the arrays hold them: to pack one takes half as long as to append its numbers.
_move_row = Struct(f"{len(MOVE_COLUMNS)}q").pack
_LOW: Final = (1 << LOW_BITS) - 1
_series_row = Struct(f"{len(SERIES_COLUMNS)}q").pack
_gap_row = Struct("4q").pack

LATEST_PS = (1 << 63) - 1  # 106 days of picoseconds, what the tables hold


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorder:
    """Records the intervals, tokens and departures of one run.

    series, moves: rows of SERIES_COLUMNS and of MOVE_COLUMNS, flat, from which the sums of bytes
    over time and over steps are taken. running_sum, waiting_sum: sequences running and waiting *
    ps; waiting_sum changes at the moments of arrival and admission, the series at the beginning of
    a row. saved_sum: bytes saved by sharing * ps. part_sums: of each part of a class (`PARTS`),
    bytes * ps. part_series: of each part that occurred, bytes in the first step of each row, up to
    the last row where it occurred. outside_steps: steps beyond those that the step time was
    measured on. gaps: (sequences, steps, first_ps, growth_ps) of tokens that came step by step, or
    all at once after a pause, flat. late_gaps: single gaps in ps. marks: rows of the series before
    which the number of running sequences changed or a sequence had finished. They are the same
    moments however many steps were taken at once. tier_hits: by the ids of sequences that found
    something in tiers; None without tiers.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.series = array("q")
        self.moves = array("q")
        self._move_kinds: dict[Moved, int] = {}
        self._sums: tuple[int, ClassSums] | None = None  # of so many rows
        self.num_rows = 0
        self.total_ps = 0
        self.running_sum = 0
        self.waiting_sum = 0
        self._queue = (0, 0)  # since when, how many
        self.saved_sum = 0
        self.part_sums = [0] * len(PARTS)
        self.part_series: dict[str, array[int]] = {}
        self._part_rows: list[array[int] | None] = [None] * len(PARTS)  # the same, by place
        self.steps = 0
        self.outside_steps = 0
        self.first_arrival_ps = -1
        self.end_ps = 0
        self.peak_used = 0
        self.peak_allocated = 0
        self.gaps = array("q")
        self.late_gaps = array("q")
        self.finished = Finished()
        self.finish_ps = array("q")
        self.rejected: list[tuple[Request, int, str]] = []
        self.failures: list[tuple[Sequence, int]] = []
        self._failed_ids: set[str] = set()
        self.tier_hits: dict[str, TierHits] | None = None
        self.marks = array("q")
        self._marked_running = -1

    def interval(
        self,
        start_ps: int,
        steps: int,
        first_ps: int,
        growth_ps: int,
        usage: Usage,
        course: Course | None,
        num_running: int,
        num_waiting: int,
        saved_bytes: int = 0,
        parts: Parts = NO_PARTS,
    ) -> None:
        """Record `steps` steps from start_ps on, which lasted first_ps, first_ps + growth_ps, ...;
        the ledger was `usage` in the first and changed by `course`.

        steps = 0: an interval of first_ps without a step. saved_bytes: bytes saved by sharing
        during the interval; parts: parts of the ledger in the first step.
        """
        check_sum(usage, self.capacity_bytes)
        pairs = steps * (steps - 1) // 2
        duration_ps = first_ps * max(steps, 1) + growth_ps * pairs
        if start_ps + duration_ps > LATEST_PS:
            raise InputError(
                "the simulated time ends before the run does",
                value=f"{seconds_from_ps(start_ps + duration_ps):.3g} s",
                limit=f"{seconds_from_ps(LATEST_PS):.3g} s",
                remedy="make steps shorter, or the workload",
            )
        if not steps:  # nothing is worth booking before the first arrival
            early_ps = max(0, self.first_arrival_ps - start_ps)
            start_ps, duration_ps = start_ps + early_ps, duration_ps - early_ps
            if duration_ps <= 0:
                return
        if num_running != self._marked_running:
            self._marked_running = num_running
            self.marks.append(self.num_rows)
        end = usage
        if course is not None and steps > 1:
            end = self._move(usage, filed(course, usage), steps, first_ps, growth_ps)
        self.steps += steps
        self.total_ps += duration_ps
        self.running_sum += num_running * duration_ps
        if saved_bytes:
            self.saved_sum += saved_bytes * duration_ps
        if parts:
            self._book_parts(parts, duration_ps)
        if course is not None and course.parts and steps > 1:
            for place, count, first, second in course.parts:
                moved_ps = count * duration_ps - first * first_ps - second * growth_ps
                self.part_sums[place] += moved_ps
        end_ps = start_ps + duration_ps
        if steps:
            self.end_ps = end_ps
        self.peak_used = max(self.peak_used, end.used)
        self.peak_allocated = max(self.peak_allocated, allocated(end))
        self.num_rows += 1
        row: tuple[int, ...] = start_ps, end_ps, steps, num_running, num_waiting
        self.series.frombytes(_series_row(*(row + usage + end)))  # one tuple is not copied

    def _book_parts(self, parts: Parts, duration_ps: int) -> None:
        """Record the parts in the first step of the row that is written next."""
        row = self.num_rows
        for place, held in parts:
            self.part_sums[place] += held * duration_ps
            rows = self._part_rows[place]
            if rows is None:
                rows = self._part_rows[place] = self.part_series[PARTS[place]] = array("q")
            missing = row - len(rows)
            if missing:
                rows.frombytes(bytes(8 * missing))
            rows.append(held)

    def _move(
        self, usage: Usage, course: Course, steps: int, first_ps: int, growth_ps: int
    ) -> Usage:
        """Add what `course` moves during the steps; returns the ledger in the last step."""
        pairs = steps * (steps - 1) // 2
        duration_ps = first_ps * steps + growth_ps * pairs
        weighted_ps = first_ps * pairs + growth_ps * (pairs * (2 * steps - 1) // 3)
        moved = list(usage)
        for source, target, unit_bytes, slope, count, first, second in course.moves:
            units, unit_steps, unit_ps = count, 0, 0
            if slope:
                units += slope * (steps - 1)
                unit_steps, unit_ps = slope * pairs, slope * weighted_ps
            if count or first or second:
                unit_steps += count * steps - first
                unit_ps += count * duration_ps - first * first_ps - second * growth_ps
            moved[source] -= units * unit_bytes
            moved[target] += units * unit_bytes
            row = _move_row(
                self.num_rows,
                self._move_kinds.setdefault((source, target, unit_bytes), len(self._move_kinds)),
                unit_ps & _LOW,
                unit_ps >> LOW_BITS,
                unit_steps & _LOW,
                unit_steps >> LOW_BITS,
            )
            self.moves.frombytes(row)
        end = usage_of(tuple(moved))
        check_sum(end, self.capacity_bytes)
        self.peak_used = max(self.peak_used, usage.used + course.used_rise)
        self.peak_allocated = max(self.peak_allocated, allocated(usage) + course.allocated_rise)
        return end

    @property
    def peaks(self) -> tuple[float, float]:
        """The largest shares of the pool that were used, and that were allocated."""
        return self.peak_used / self.capacity_bytes, self.peak_allocated / self.capacity_bytes

    @property
    def pool_steps(self) -> int:
        """Bytes of the pool * steps."""
        return self.capacity_bytes * self.steps

    @property
    def time_sum(self) -> list[int]:
        """Bytes * ps of each class."""
        return self._whole_sums().ps

    @property
    def step_sum(self) -> list[int]:
        """Bytes * steps of each class."""
        return self._whole_sums().steps

    def time_sum_before(self, row: int) -> list[int]:
        """Bytes * ps of each class in all rows before `row`."""
        return self._sums_before(row).ps

    def pool_sum_before(self, row: int) -> int:
        """Bytes of the pool * ps in all rows before `row`."""
        rows = self.rows()[:row]
        return self.capacity_bytes * int((rows[:, 1] - rows[:, 0]).sum())

    def step_sum_before(self, row: int) -> list[int]:
        """Bytes * steps of each class in all rows before `row`."""
        return self._sums_before(row).steps

    def _whole_sums(self) -> ClassSums:
        """The sums over all rows so far, computed once."""
        if self._sums is None or self._sums[0] != self.num_rows:
            self._sums = self.num_rows, self._sums_before(self.num_rows)
        return self._sums[1]

    def _sums_before(self, row: int) -> ClassSums:
        moves = np.frombuffer(self.moves, dtype=np.int64).reshape(-1, len(MOVE_COLUMNS))
        return class_sums(self.rows(), moves, list(self._move_kinds), row)

    def rows(self) -> Integers:
        """The series as (rows, SERIES_COLUMNS)."""
        return np.frombuffer(self.series, dtype=np.int64).reshape(-1, len(SERIES_COLUMNS))

    def queue(self, now_ps: int, num_waiting: int) -> None:
        """Record that num_waiting sequences wait from now on."""
        since_ps, number = self._queue
        self.waiting_sum += number * (now_ps - since_ps)
        self._queue = now_ps, num_waiting

    @property
    def makespan_ps(self) -> int:
        """Time from the first arrival to the end of the last step, or to the last departure."""
        return self.end_ps - self.first_arrival_ps if self.steps else 0

    def arrived(self, now_ps: int) -> None:
        """Record the arrival of a request."""
        if self.first_arrival_ps < 0:
            self.first_arrival_ps = now_ps

    def tokens(self, sequences: int, steps: int, first_ps: int, growth_ps: int) -> None:
        """Record the gaps of sequences that got one token in each of `steps` steps: a gap is as
        long as its step, first_ps, first_ps + growth_ps, ...
        """
        if sequences:
            self.gaps.frombytes(_gap_row(sequences, steps, first_ps, growth_ps))

    def gaps_until(self, now_ps: int, since_ps: Iterable[int]) -> None:
        """Record the gaps of single tokens that arrive now; the previous tokens came at
        since_ps.
        """
        self.late_gaps.extend(now_ps - moment for moment in since_ps)

    def left(self, seq: Sequence, now_ps: int) -> None:
        """Record the end of a sequence that has all its tokens."""
        self.finished.append(seq)
        self.finish_ps.append(now_ps)
        self.end_ps = max(self.end_ps, now_ps)  # its output was processed after the step
        self._marked_running = -1

    def failed(self, seq: Sequence, now_ps: int, reason: str) -> None:
        """Record a sequence that ended with an error; its request counts as refused."""
        self.failures.append((seq, now_ps))
        self._marked_running = -1
        if seq.request.id not in self._failed_ids:
            self._failed_ids.add(seq.request.id)
            self.rejected.append((seq.request, now_ps, reason))

    def refused(self, request: Request, now_ps: int, reason: str) -> None:
        """Record a request that was refused on arrival."""
        self.rejected.append((request, now_ps, reason))
