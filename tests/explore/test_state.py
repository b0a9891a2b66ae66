"""Addresses: what the page holds, its address brings back; what one may not, it cannot."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.explore.bases import find_bases
from kvsim.explore.crew import Crew
from kvsim.explore.desk import Desk
from kvsim.explore.state import State, read_query, started
from kvsim.explore.visit import Visit
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario, recipes

BASES = find_bases(None)


class Idle(Crew):
    """Nobody works."""

    def __init__(self) -> None:
        super().__init__(0)


DESK = Desk(BASES, Idle(), "chat")


def test_the_bases_are_the_recipes_and_the_tour() -> None:
    assert [name for name in BASES if not name.startswith("tour:")] == list(recipes())
    assert len(BASES) == len(recipes()) + 7


@pytest.mark.parametrize("name", list(BASES))
def test_a_base_comes_back_from_its_address(name: str) -> None:
    state = started(BASES[name])
    assert state.settings(BASES) == []
    assert read_query(state.query(BASES), BASES, "chat") == state


LABELS = st.text(max_size=40)


@given(
    label=LABELS,
    rate=st.floats(0.01, 1e6),
    kinds=st.lists(st.sampled_from(["paged", "doubling", "radix"]), min_size=1, max_size=3),
    way=st.sampled_from([{"kv_cache_bytes": 7 << 30}, {"gpu_memory_utilization": 0.5}, {}]),
)
def test_a_changed_state_comes_back_from_its_address(
    label: str, rate: float, kinds: list[str], way: dict[str, Any]
) -> None:
    table = dict(started(BASES["chat"]).table)
    table["allocator"] = [{"kind": k, "label": f"{i}{label}"} for i, k in enumerate(kinds)]
    table["memory"] = way
    table["workload"] = {**table["workload"], "arrivals": {"kind": "poisson", "rate_per_s": rate}}
    visit = Visit(State("chat", table), ("from=agents", State("chat", table).query(BASES)))
    visit = visit._replace(sweep="workload.num_requests=10:20:3log")
    back = Visit.at(visit.query(DESK), DESK)
    assert back == visit
    assert Visit.restored(back.stored()) == visit
    assert back.state.key == visit.state.key


def test_settings_are_what_kvsim_run_takes() -> None:
    table = dict(started(BASES["chat"]).table)
    table["memory"] = {"gpu_memory_utilization": 0.5}
    table["scheduler"] = {**table["scheduler"], "max_num_seqs": 7}
    settings = State("chat", table).settings(BASES)
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
def test_an_address_that_means_nothing_is_refused_in_one_line(query: str) -> None:
    with pytest.raises(InputError) as error:
        Visit.at(query, DESK)
    assert "\n" not in str(error.value)


def test_a_given_scenario_is_first(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(Path(recipes()["chat"]).read_text())
    bases = find_bases(str(tmp_path / "mine.toml"))
    assert next(iter(bases)) == "mine"
    assert bases["mine"].folder == tmp_path
    with pytest.raises(InputError):
        find_bases("no-such-recipe")
