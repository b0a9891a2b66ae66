"""What a page cannot do: read other files, quote their contents, or start large jobs."""

from pathlib import Path
from typing import Any

import pytest
from support.explore_tasks import Grows

from kvsim.explore import worker, worker_pool
from kvsim.explore.confined import check_paths, said
from kvsim.explore.page_context import PageContext
from kvsim.explore.starting_points import StartingPoint, find_starting_points, normal
from kvsim.explore.state import ScenarioState, read_query
from kvsim.explore.task import RunTask, SweepTask
from kvsim.explore.worker_pool import WorkerPool
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.toml import to_toml
from kvsim.scenario import load_tables

SECRET = "root:x:0:0:hidden"
PATHS = (
    'workload={kind="trace", path="%s"}',
    'model={hf_config="%s"}',
    'step_time={kind="calibrated", file="%s"}',
    'workload={kind="trace", format="azure", path="%s"}',
    'workload={kind="uncached", of={kind="trace", path="%s"}}',
    'speculative_config={method="draft_model", hf_config="%s", num_speculative_tokens=1}',
)


@pytest.fixture
def points(tmp_path: Path) -> dict[str, StartingPoint]:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "mine.toml").write_text(to_toml(load_tables("chat")[0]))
    (tmp_path / "secret.csv").write_text(f"{SECRET}\n1,2,3\n")
    (folder / "inside.csv").write_text(f"{SECRET}\n1,2,3\n")
    (folder / "link.csv").symlink_to(tmp_path / "secret.csv")
    return find_starting_points(str(folder / "mine.toml"))


@pytest.mark.parametrize("setting", PATHS)
@pytest.mark.parametrize(
    ("base", "path"),
    [
        *(("mine", path) for path in ("../secret.csv", "/etc/passwd", "link.csv")),
        *(("chat", "/etc/passwd"), ("tour:blocks", "pyproject.toml")),
    ],
)
def test_page_address_cannot_name_files_outside_the_scenario_folder(
    points: Any, setting: str, path: str, base: str
) -> None:
    with pytest.raises(InputError, match="files of its scenario's folder alone"):
        check_paths(_put(points[base], setting % path), points[base])
    if base == "mine" and "speculative" not in setting:
        with pytest.raises(InputError, match=r"alone|unknown key|change"):
            read_query(f"from={base}&set={setting % path}", points, "mine")


@pytest.mark.parametrize("setting", PATHS)
def test_explorer_errors_do_not_quote_file_contents(points: Any, setting: str) -> None:
    """For every reader and every error; `kvsim run` in a terminal prints the full error."""
    base = points["mine"]
    table = _put(base, setting % "inside.csv")
    check_paths(table, base)
    with pytest.raises(InputError) as caught:
        RunTask(table, base.folder, base.table).do(lambda *_: None)
    words = said(caught.value, table, base.table)
    assert "hidden" not in words
    assert "root" not in words
    assert "kvsim run" in words or "inside.csv" not in str(caught.value)


def test_callback_checks_the_browsers_stored_state(points: Any) -> None:
    """A visitor can change the state that the browser stores."""
    context = PageContext(points, WorkerPool(0), "mine")
    table = _put(points["mine"], PATHS[0] % "/etc/passwd")
    with pytest.raises(InputError, match="alone"):
        context.run_task(ScenarioState("mine", table))
    with pytest.raises(InputError, match="alone"):
        context.sweep_task(ScenarioState("mine", table), "scheduler.max_num_seqs=1:3:3")


def test_large_runs_start_only_with_the_run_button() -> None:
    table = normal(load_tables("chat")[0])
    much = {**table, "workload": {**table["workload"], "num_requests": 10**7}}
    pool = WorkerPool(0)
    task = RunTask(much, Path(), table)
    job = pool.ask("a", "k", task)
    assert job.state == "failed"
    assert "10,000,000 requests are more" in job.fault
    assert "press Run" in job.fault
    some = {**table, "workload": {**table["workload"], "num_requests": 50_000}}
    sweep = SweepTask(some, Path(), table, "seed", (1, 2, 3, 4, 5))
    assert pool.ask("a", "s", sweep).state == "failed"


def test_unrequested_job_ends_at_its_time_and_memory_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_pool, "MOST_SECONDS", 2.0)
    pool = WorkerPool(1)
    try:
        _until(pool, pool.ask("a", "slow", Grows(0)), "failed")
        assert "press Run" in pool.look("slow").fault
        monkeypatch.setattr(worker_pool, "MOST_SECONDS", 600.0)
        _until(pool, pool.ask("a", "large", Grows(worker.MOST_MEMORY_BYTES * 2)), "failed")
        assert "out of memory" in pool.look("large").fault
    finally:
        pool.close()


def _until(pool: WorkerPool, job: Any, state: str) -> None:
    import time

    end = time.monotonic() + 120
    while not job.is_over and time.monotonic() < end:
        pool.look(job.key)
        time.sleep(0.05)
    assert job.state == state, job.fault


def _put(base: StartingPoint, setting: str) -> dict[str, Any]:
    from copy import deepcopy

    from kvsim.plumbing.keys import assignment, put

    table = deepcopy(base.table)
    put(table, *assignment(setting, "t"), "t")
    return normal(table)


@pytest.mark.parametrize("drafter", ["../secret.json", "/etc", "/etc/x.json", "../elsewhere"])
def test_drafter_path_outside_the_folder_is_refused(points: Any, drafter: str) -> None:
    table = _put(points["mine"], f'memory={{drafter="{drafter}"}}')
    with pytest.raises(InputError, match="files of its scenario's folder alone"):
        check_paths(table, points["mine"])


@pytest.mark.parametrize("drafter", ["mtp", "llama-3.2-1b", "meta-llama/Llama-3.2-1B"])
def test_drafter_name_is_not_read_as_a_file(points: Any, drafter: str) -> None:
    check_paths(_put(points["mine"], f'memory={{drafter="{drafter}"}}'), points["mine"])


def test_drafter_file_is_searched_next_to_the_scenario_and_not_quoted(
    points: Any, tmp_path: Path
) -> None:
    base = points["mine"]
    (base.folder / "drafter.json").write_text('{"hidden": root')
    table = _put(base, 'memory={drafter="drafter.json"}')
    check_paths(table, base)
    with pytest.raises(InputError, match=r"drafter\.json: not JSON") as caught:
        RunTask(table, base.folder, base.table).do(lambda *_: None)
    words = said(caught.value, table, base.table)
    assert words.startswith("memory.drafter: the file cannot be read")
