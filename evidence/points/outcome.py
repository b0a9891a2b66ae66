"""Simulate points, each as a scenario, several in parallel."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evidence.points.labels import named_split, split_of
from evidence.points.rows import Point
from evidence.points.scenario import prepare
from kvsim.plumbing.errors import InputError
from kvsim.whatif.backends.processes import Processes
from kvsim.whatif.task import Task, make_task

MS_PER_S = 1000.0
Progress = Callable[[str, int, int], None]
Times = tuple[float, float]  # mean TTFT and TPOT, milliseconds


class PointOutcome(NamedTuple):
    """Result of a row.

    simulated: TTFT and TPOT; None if the row is refused, for the reason `refused`. outside: share
    of steps outside the range on which the step time was measured. wall_s: seconds taken.
    """

    row: Point
    simulated: Times | None
    refused: str = ""
    outside: float = 0.0
    wall_s: float = 0.0

    @property
    def measured(self) -> Times:
        """Measured TTFT and TPOT in milliseconds."""
        return self.row.silicon_ttft_ms, self.row.silicon_tpot_ms

    def errors(self, tool: str = "") -> Times | None:
        """Simulated / measured - 1 of TTFT and TPOT; with `tool`, of another tool's estimates."""
        estimate = self.row.estimates.get(tool) if tool else self.simulated
        if estimate is None:
            return None
        (ttft, tpot), (measured_ttft, measured_tpot) = estimate, self.measured
        return ttft / measured_ttft - 1, tpot / measured_tpot - 1

    def as_row(self) -> dict[str, Any]:
        """A row for tables and JSON: labels, measurements, simulated numbers, errors."""
        row, split = self.row, split_of(self.row)
        errors = self.errors() or (None, None)
        ttft_ms, tpot_ms = self.simulated or (None, None)
        return {
            "id": row.id,
            "half": row.half,
            "engine": row.backend,
            "version": row.backend_version,
            "model": row.model_path,
            "device": row.system,
            "precision": row.precision,
            "split": named_split(row),
            "servers": row.servers,
            "isl": row.isl,
            "osl": row.osl,
            "clients": row.clients(split.copies),
            "measured_ttft_ms": row.silicon_ttft_ms,
            "measured_tpot_ms": row.silicon_tpot_ms,
            "ttft_ms": ttft_ms,
            "tpot_ms": tpot_ms,
            "ttft_error": errors[0],
            "tpot_error": errors[1],
            "outside_domain": self.outside,
            "refused": self.refused,
        }


def simulate_points(
    rows: Sequence[Point],
    step_time: str | None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[PointOutcome]:
    """Simulate all rows; one outcome per row, in order. Rows with equal scenarios run once.

    step_time: kind of `[step_time]`; None for a scenario's default. jobs: number of processes.
    """
    found: dict[str, PointOutcome] = {}
    tasks: dict[str, Task] = {}
    front_ms: dict[str, float] = {}
    owners: dict[str, list[Point]] = {}
    for row in rows:
        try:
            ready = prepare(row, step_time)
        except InputError as error:
            found[row.id] = PointOutcome(row, None, str(error))
            continue
        task = make_task(ready.table, Path())
        front_ms[row.id] = ready.front_end_ms
        tasks[task.key] = task
        owners.setdefault(task.key, []).append(row)
    done = 0
    for task_outcome in Processes(jobs=jobs).run(list(tasks.values())):
        for row in owners[task_outcome.key]:
            if task_outcome.error is not None:
                found[row.id] = PointOutcome(row, None, task_outcome.error)
                continue
            (simulated,) = task_outcome.rows
            ttft_ms = simulated["ttft_s.mean"] * MS_PER_S + front_ms[row.id]
            times = ttft_ms, simulated["tpot_s.mean"] * MS_PER_S
            steps = simulated["steps"] or 1
            outside = (simulated.get("outside_domain_steps") or 0) / steps
            found[row.id] = PointOutcome(row, times, "", outside, task_outcome.wall_s)
        done += 1
        if progress is not None:
            progress("points", done, len(tasks))
    return [found[row.id] for row in rows]


def some_of(rows: Iterable[Point], every: int, seed: int) -> list[Point]:
    """A random sample of one in `every` rows by `seed`, in the table's order."""
    import numpy as np

    listed = list(rows)
    order = np.random.default_rng(seed).permutation(len(listed))
    return [listed[index] for index in sorted(order[::every].tolist())]
