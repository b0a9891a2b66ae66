"""A task of a what-if tool: a scenario's tables at one seed, run by any worker process.

A task carries all it needs and its outcome is plain data. So any process of any machine that sees
the same files gives the same outcome.
"""

import json
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kvsim.plumbing.errors import InputError
from kvsim.request import Stream
from kvsim.results.departures import Departures, within
from kvsim.results.flat import flat
from kvsim.results.measurement import queue_grew
from kvsim.results.recorder import Recorder
from kvsim.results.result import Run
from kvsim.scenario import Scenario
from kvsim.scenario.resolved import PATH_KEYS
from kvsim.simulation import Simulation
from kvsim.simulation.fleet import FleetSimulation
from kvsim.version import VERSION
from kvsim.whatif.notes import WORKLOAD
from kvsim.whatif.watch import QueueWatch, QueueWatches
from kvsim.workload.options import WorkloadOptions

Row = dict[str, Any]


class Runnable(Protocol):
    """Anything that a backend runs: it carries all it needs.

    key: differs from that of any task that runs at the same time.
    """

    @property
    def key(self) -> str: ...

    def rows(self) -> Sequence[Any]:
        """The task's outcome, as plain data."""
        ...


class Task(NamedTuple):
    """One simulation to run. key: the same for equal tasks, on every machine. table: the scenario
    as nested dictionaries, its seed included. folder: where its relative paths start. limits_s: the
    limits, in seconds, that a request must keep to count as `within`, by latency (`ttft_s`). waits:
    whether rows also hold the causes for which the queue waited (`waits.memory`), which takes more
    time.
    """

    key: str
    table: dict[str, Any]
    folder: str
    limits_s: dict[str, float]
    waits: bool = False

    def rows(self) -> list[Row]:
        """The numbers of each allocator."""
        return _rows(self)


class TaskOutcome(NamedTuple):
    """The outcome of a task. rows: of a simulation, one an allocator, flat (`ttft_s.p99`); none
    where it failed.
    error: the reason. wrong_input: whether the task would fail again. wall_s: seconds that it took.
    """

    key: str
    rows: tuple[Any, ...]
    error: str | None
    wrong_input: bool
    wall_s: float


def make_task(
    table: Mapping[str, Any],
    folder: Path,
    limits_s: Mapping[str, float] | None = None,
    *,
    waits: bool = False,
) -> Task:
    """The task of these tables. In its key, files count by their content, not by their path."""
    plain = {key: value for key, value in table.items() if key != "provenance"}
    limits = dict(limits_s or {})
    asked = [VERSION, _by_content(plain, folder), limits, *(["waits"] if waits else [])]
    named = json.dumps(asked, sort_keys=True, default=str)
    return Task(sha256(named.encode()).hexdigest(), plain, str(folder.resolve()), limits, waits)


def run_task(task: Runnable) -> TaskOutcome:
    """Run a task. Any error is in the returned outcome, not raised."""
    began = time.perf_counter()
    try:
        rows = tuple(task.rows())
    except InputError as error:
        return TaskOutcome(task.key, (), str(error), True, time.perf_counter() - began)
    except Exception as error:  # a fault of one point is written down, and the others go on
        said = f"{type(error).__name__}: {error}"
        return TaskOutcome(task.key, (), said, False, time.perf_counter() - began)
    return TaskOutcome(task.key, rows, None, False, time.perf_counter() - began)


def _rows(task: Task) -> list[Row]:
    scenario = Scenario.from_table(task.table, Path(task.folder))
    simulation = Simulation(scenario, _stream(scenario))
    if simulation.fleet is not None:
        return _fleet_rows(task, simulation, simulation.fleet)
    rows = []
    for options, label in zip(scenario.allocator, simulation.labels, strict=True):
        watch = QueueWatch(options.scheduler or scenario.scheduler) if task.waits else None
        run = simulation.run(options, label, observer=watch)
        assert run.recorder is not None  # it has just been simulated
        row = {**flat(run.summary.simulated()), "saturated": _saturated(run)}
        row[WORKLOAD] = json.dumps(simulation.stream.notes)
        if task.limits_s:
            row["within"] = share_within(run.recorder, task.limits_s)
        if watch is not None:
            spent_ps = run.recorder.waiting_sum + run.recorder.running_sum
            row.update(flat(watch.waits(spent_ps)._asdict(), "waits."))
        rows.append(row)
    return rows


def _fleet_rows(task: Task, simulation: Simulation, fleet: FleetSimulation) -> list[Row]:
    """The summary of the whole fleet, one row for each allocator."""
    rows = []
    for options, label in zip(simulation.scenario.allocator, simulation.labels, strict=True):
        watch = QueueWatches(simulation.scenario.scheduler_of(options)) if task.waits else None
        served = fleet.runs(options, label, simulation.stream, observer_of=watch)
        row = flat(served.summary.simulated())
        recorders = [run.recorder for run in served.runs if run.recorder is not None]
        row["saturated"] = any(map(_saturated, served.runs))
        row[WORKLOAD] = json.dumps(simulation.stream.notes)
        if task.limits_s:
            everyone = served.summary.requests.submitted
            kept = sum(within(Departures.of(each), task.limits_s) for each in recorders)
            row["within"] = kept / everyone if everyone else 0.0
        if watch is not None:
            spent_ps = sum(each.waiting_sum + each.running_sum for each in recorders)
            row.update(flat(watch.waits(spent_ps)._asdict(), "waits."))
        rows.append(row)
    return rows


def _saturated(run: Run) -> bool:
    """Whether a queue only grew, of the run or of another pool of it."""
    found = [each.recorder for each in (run, *run.beside)]
    return any(queue_grew(each) is not None for each in found if each is not None)


def share_within(recorder: Recorder, limits_s: Mapping[str, float]) -> float:
    """The share of all sequences, refused ones included, with every latency within its limit."""
    done = Departures.of(recorder)
    everyone = len(done.output_tokens) + len(recorder.rejected)
    return float(within(done, limits_s)) / everyone if everyone else 0.0


def _stream(scenario: Scenario) -> Stream | None:
    """The scenario's requests, generated once in a process for all points that share them."""
    workload = scenario.workload
    if workload is None:
        return None
    longest = scenario.model.model_len(scenario.model.build(scenario.folder))
    return _generated(_Workload(workload), scenario.seed, scenario.folder, longest)


class _Workload:
    """A workload's options as a key: equal where they are written the same."""

    def __init__(self, options: WorkloadOptions) -> None:
        self.options = options
        self._text = repr(options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Workload) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@lru_cache(maxsize=2)
def _generated(workload: _Workload, seed: int, folder: Path, max_model_len: int) -> Stream:
    return workload.options.stream(seed, base=folder, max_model_len=max_model_len)


def _by_content(value: Any, folder: Path, key: str = "") -> Any:
    """The tables with every file's path replaced by the hash of what it holds."""
    if isinstance(value, Mapping):
        return {name: _by_content(inner, folder, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_by_content(inner, folder, key) for inner in value]
    if key in PATH_KEYS and isinstance(value, str) and (folder / value).is_file():
        path = folder / value
        return _content(path, path.stat().st_mtime_ns, path.stat().st_size)
    return value


@lru_cache(maxsize=256)
def _content(path: Path, modified_ns: int, size: int) -> str:
    """sha256 of a file, read once while it stays as it is."""
    return sha256(path.read_bytes()).hexdigest()
