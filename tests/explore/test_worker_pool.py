"""Jobs of the explorer: equal answers to kvsim run, progress, and cancellation."""

import math
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.explore_tasks import Dies, Fails

from kvsim.explore import worker_pool
from kvsim.explore.starting_points import find_starting_points
from kvsim.explore.state import started
from kvsim.explore.task import RunTask, SweepTask
from kvsim.explore.worker_pool import Job, WorkerPool
from kvsim.simulation import simulate

STARTING_POINTS = find_starting_points(None)
SMALL = started(STARTING_POINTS["tour:blocks"], ["workload.num_requests=30"]).table
ENDLESS = RunTask(
    started(STARTING_POINTS["chat"], ["workload.num_requests=200000"]).table,
    STARTING_POINTS["chat"].folder,
    STARTING_POINTS["chat"].table,
)


LONGEST_S = 300.0  # on a busy machine; what is waited for takes a moment


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerPool]:
    made = WorkerPool(1)
    yield made
    made.close()


def ended(workers: WorkerPool, key: str) -> Job:
    return until(workers, key, lambda job: job.is_over)


def until(workers: WorkerPool, key: str, true: Any) -> Job:
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        job = workers.look(key)
        if job is not None and true(job):
            return job
        time.sleep(0.02)
    raise AssertionError(f"never: {job}")


def plain(runs: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in run.items() if k != "wall_s"} for run in runs]


def test_explorer_answer_equals_kvsim_run_and_its_saved_scenario(
    workers: WorkerPool,
) -> None:
    workers.ask("me", "small", RunTask(SMALL, Path(), SMALL))
    job = ended(workers, "small")
    assert job.state == "done", job.fault
    expected = [run.summary for run in simulate(SMALL).runs]
    assert plain(job.answer["runs"]) == plain(expected)
    saved = tomllib.loads(job.answer["scenario"])
    assert plain(run.summary for run in simulate(saved).runs) == plain(expected)
    assert workers.ask("me", "small", RunTask(SMALL, Path(), SMALL)) is job


def test_a_cancelled_job_ends_at_once_and_the_next_one_runs(workers: WorkerPool) -> None:
    workers.ask("me", "endless", ENDLESS)
    until(workers, "endless", lambda job: job.state == "running")
    workers.cancel("me")
    job = ended(workers, "endless")
    assert job.state == "cancelled"
    assert not job.is_missed_by("me")
    workers.ask("me", "after", RunTask(SMALL, Path(), SMALL))
    assert ended(workers, "after").state == "done"


def test_new_request_of_a_page_cancels_its_previous_job(workers: WorkerPool) -> None:
    workers.ask("me", "endless", ENDLESS)
    until(workers, "endless", lambda job: job.state == "running")
    workers.ask("me", "other", RunTask(SMALL, Path(), SMALL))
    assert ended(workers, "endless").state == "cancelled"
    assert ended(workers, "other").state == "done"


def test_closed_page_cancels_its_jobs(workers: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "PATIENCE_S", 0.2)
    job = workers.ask("me", "endless", ENDLESS)
    end = time.monotonic() + LONGEST_S
    while not job.is_over and time.monotonic() < end:  # nobody looks at it
        time.sleep(0.05)
    assert job.state == "cancelled"
    assert job.is_missed_by("me")
    assert not job.is_missed_by("you")


def test_a_process_that_dies_is_replaced(workers: WorkerPool) -> None:
    workers.ask("me", "dies", Dies())
    assert ended(workers, "dies").fault == "the process that simulated it ended"
    workers.ask("me", "fails", Fails())
    assert "please report it: ZeroDivisionError" in ended(workers, "fails").fault
    wrong = {**SMALL, "memory": {"kv_cache_tokens": 1}}
    workers.ask("me", "wrong", RunTask(wrong, Path(), wrong))
    assert ended(workers, "wrong").state == "failed"
    assert "\n" not in ended(workers, "wrong").fault


@pytest.mark.parametrize(("silent", "state"), [(1, "done"), (2, "failed")])
def test_the_time_of_a_job_counts_from_the_first_message(
    monkeypatch: pytest.MonkeyPatch, silent: int, state: str
) -> None:
    """A worker that loads kvsim is silent, here for 200 s; the clock advances 50 s per reading."""
    now_s = 0.0
    said = [*[None] * 4, ("progress", ("starting", 0, 1)), *[None] * silent, ("answer", "it")]

    class Line:
        def poll(self, timeout: float) -> bool:
            nonlocal now_s
            now_s += 50.0
            return said[0] is not None or bool(said.pop(0))

        def recv(self) -> Any:
            return said.pop(0)

    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr(worker_pool, "PATIENCE_S", math.inf)
    monkeypatch.setattr(worker_pool, "MOST_SECONDS", 60.0)
    monkeypatch.setattr(worker_pool, "time", clock)
    job = Job("k", RunTask(SMALL, Path(), SMALL), owners={"me"})
    followed: Any = worker_pool._followed
    assert followed(job, Line()) == (state == "done")
    assert job.state == state


def test_explorer_sweep_runs_once_per_value() -> None:
    told: list[tuple[str, int, int]] = []
    task = SweepTask(SMALL, Path(), SMALL, "allocator.2.block_size", (8, 0, 64))
    points = task.do(lambda *each: told.append(each))
    assert [point.value for point in points] == [8, 0, 64]
    assert [bool(point.fault) for point in points] == [False, True, False]
    for point in (points[0], points[2]):
        tables = [*SMALL["allocator"][:2], {**SMALL["allocator"][2], "block_size": point.value}]
        expected = simulate({**SMALL, "allocator": tables})
        assert plain(point.runs) == plain(run.summary for run in expected.runs)
    assert all(0 <= done <= total for _, done, total in told)
