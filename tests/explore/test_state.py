"""Addresses of the explorer: they restore the page's state, and only valid states."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.explore.page_context import PageContext
from kvsim.explore.starting_points import find_starting_points
from kvsim.explore.state import ScenarioState, read_query, started
from kvsim.explore.visit import PageVisit
from kvsim.explore.worker_pool import WorkerPool
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario, recipes

STARTING_POINTS = find_starting_points(None)


class Idle(WorkerPool):
    """A worker pool that never works."""

    def __init__(self) -> None:
        super().__init__(0)


DESK = PageContext(STARTING_POINTS, Idle(), "chat")


def test_explorer_bases_are_the_recipes_and_tour_stops() -> None:
    assert [name for name in STARTING_POINTS if not name.startswith("tour:")] == list(recipes())
    assert len(STARTING_POINTS) == len(recipes()) + 7


@pytest.mark.parametrize("name", list(STARTING_POINTS))
def test_state_of_each_starting_point_is_restored_from_its_address(name: str) -> None:
    state = started(STARTING_POINTS[name])
    assert state.settings(STARTING_POINTS) == []
    assert read_query(state.query(STARTING_POINTS), STARTING_POINTS, "chat") == state


@pytest.mark.parametrize("name", list(STARTING_POINTS))
def test_state_restored_from_the_browser_has_the_same_answer(name: str) -> None:
    """JavaScript writes 3.0 as 3. The page once waited for a second run of the same state."""

    def held(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: held(each) for key, each in value.items()}
        if isinstance(value, list):
            return [held(each) for each in value]
        return int(value) if isinstance(value, float) and value == int(value) else value

    state = started(STARTING_POINTS[name])
    assert ScenarioState(name, held(state.table)).key == state.key


def test_different_states_have_different_answer_keys() -> None:
    one, other = (
        started(STARTING_POINTS["chat"], [f"workload.arrivals.rate_per_s={rate}"])
        for rate in (3.0, 3.5)
    )
    assert one.key != other.key


LABELS = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=40)


@given(
    label=LABELS,
    rate=st.floats(0.01, 1e6),
    kinds=st.lists(st.sampled_from(["paged", "doubling", "radix"]), min_size=1, max_size=3),
    way=st.sampled_from([{"kv_cache_bytes": 7 << 30}, {"gpu_memory_utilization": 0.5}, {}]),
)
def test_changed_state_is_restored_from_its_address(
    label: str, rate: float, kinds: list[str], way: dict[str, Any]
) -> None:
    table = dict(started(STARTING_POINTS["chat"]).table)
    table["allocator"] = [{"kind": k, "label": f"{i}{label}"} for i, k in enumerate(kinds)]
    table["memory"] = way
    table["workload"] = {**table["workload"], "arrivals": {"kind": "poisson", "rate_per_s": rate}}
    visit = PageVisit(
        ScenarioState("chat", table),
        ("from=agents", ScenarioState("chat", table).query(STARTING_POINTS)),
    )
    visit = visit._replace(sweep="workload.num_requests=10:20:3log")
    back = PageVisit.at(visit.query(DESK), DESK)
    assert back == visit
    assert PageVisit.restored(back.stored()) == visit
    assert back.state.key == visit.state.key


def test_page_settings_equal_set_arguments_of_kvsim_run() -> None:
    table = dict(started(STARTING_POINTS["chat"]).table)
    table["memory"] = {"gpu_memory_utilization": 0.5}
    table["scheduler"] = {**table["scheduler"], "max_num_seqs": 7}
    settings = ScenarioState("chat", table).settings(STARTING_POINTS)
    assert settings == ["memory={ gpu_memory_utilization = 0.5 }", "scheduler.max_num_seqs=7"]
    assert Scenario.load("chat", settings).model_dump() == Scenario.from_table(table).model_dump()


@pytest.mark.parametrize(
    "query",
    [
        "from=/etc/passwd",
        "from=nothing",
        "from=chat&set=allocator=5",
        "from=chat&set=allocator=[]",
        "from=chat&set=workload.rate=1",
        "from=chat&set=nonsense",
        "from=chat&sweep=seed=1:2:3",
        "from=chat&sweep=scheduler.max_num_seqs=1",
        "from=chat&pin=from%3Dnothing",
    ],
)
def test_invalid_page_address_is_a_one_line_error(query: str) -> None:
    with pytest.raises(InputError) as error:
        PageVisit.at(query, DESK)
    assert "\n" not in str(error.value)


def test_explorer_lists_the_given_scenario_first(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(Path(recipes()["chat"]).read_text())
    starting_points = find_starting_points(str(tmp_path / "mine.toml"))
    assert next(iter(starting_points)) == "mine"
    assert starting_points["mine"].folder == tmp_path
    with pytest.raises(InputError):
        find_starting_points("no-such-recipe")
