"""The explorer's widgets and buttons: every control on every scenario, and each action."""

import json
from typing import Any

import pytest

from kvsim.explore import actions
from kvsim.explore.controls import CONTROLS
from kvsim.explore.page_context import PageContext
from kvsim.explore.pins import pin_button, short_name
from kvsim.explore.starting_points import TOUR, find_starting_points
from kvsim.explore.state import started
from kvsim.explore.sweeping import ends, knob_titles, numbers
from kvsim.explore.tour import STOPS, find_stop
from kvsim.explore.visit import MOST_PINS, PageVisit
from kvsim.explore.widgets import KEY, read_value
from kvsim.explore.worker_pool import WorkerPool
from kvsim.memory import ALLOCATORS
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.scenario import Scenario

STARTING_POINTS = find_starting_points(None)
DESK = PageContext(STARTING_POINTS, WorkerPool(0), "chat")


def visit(base: str = "chat") -> PageVisit:
    return PageVisit(started(STARTING_POINTS[base]))


def ids_and_values(table: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    found = [
        (each.id, getattr(each, "value", None))
        for widgets in actions.control_widgets(table).values()
        for widget in widgets
        for each in (widget, *widget._traverse())
        if isinstance(getattr(each, "id", None), dict) and each.id["part"] == KEY
    ]
    ids, values = zip(*found, strict=True)
    return list(ids), list(values)


@pytest.mark.parametrize("base", list(STARTING_POINTS))
def test_widgets_show_the_values_of_the_tables(base: str) -> None:
    """Unchanged widgets leave the scenario equal."""
    table = visit(base).state.table
    ids, values = ids_and_values(table)
    names = [json.dumps(each, sort_keys=True) for each in ids]
    assert len(set(names)) == len(names)
    assert actions.differing(table, ids, values) == {}
    held = Scenario.from_table(table, STARTING_POINTS[base].folder).model_dump()
    for name, value in zip(ids, values, strict=True):
        meant = read_value(name["form"], value)
        implied = name["key"] == "workload.rate_scale"  # 1 is how a trace is replayed anyway
        if meant is not None and " " not in name["key"] and not implied:
            turned = actions.turn(visit(base), DESK, {name["key"]: meant})
            meant = Scenario.from_table(turned.state.table, STARTING_POINTS[base].folder)
            assert meant.model_dump() == held, name


@pytest.mark.parametrize("name", list(CONTROLS))
def test_every_control_has_a_widget(name: str) -> None:
    control = CONTROLS.get(name)()
    assert control.title
    assert control.widgets(visit().state.table)


@pytest.mark.parametrize("kind", list(ALLOCATORS))
def test_changing_the_allocator_kind_shows_its_options(kind: str) -> None:
    other = "max-buffer" if kind != "max-buffer" else "paged"
    first = actions.turn(visit(), DESK, {"allocator.1.kind": other, "allocator.1.label": "b"})
    turned = actions.turn(first, DESK, {"allocator.1.kind": kind})
    assert turned.state.table["allocator"][1] == {"kind": kind, "label": "b"}
    ids, values = ids_and_values(turned.state.table)
    keys = {each["key"] for each in ids}
    every = ALLOCATORS.get(kind).model_fields.items()
    fields = [name for name, field in every if not isinstance(field.default, Options)]
    assert len(keys & {f"allocator.1.{name}" for name in fields}) == len(fields)
    assert actions.differing(turned.state.table, ids, values) == {}


def test_changed_widgets_change_the_scenario() -> None:
    def turned(**values: Any) -> dict[str, Any]:
        named = {key.replace("__", "."): value for key, value in values.items()}
        return actions.turn(visit(), DESK, named).state.table

    assert turned(workload__arrivals__rate_per_s=9)["workload"]["arrivals"]["rate_per_s"] == 9
    assert turned(allocator__2__block_size=32)["allocator"][2]["block_size"] == 32
    assert "block_size" not in turned(allocator__2__block_size=None)["allocator"][2]
    assert turned(model__name="llama-2-7b", model__max_model_len=512)["model"] == {
        "name": "llama-2-7b", "max_model_len": 512,
    }  # fmt: skip
    assert turned(device__name="h200")["device"] == {"name": "h200"}
    pool = actions.turn(visit(), DESK, {"memory.given as": "num_gpu_blocks"})
    assert list(pool.state.table["memory"]) == ["num_gpu_blocks"]
    comes = actions.turn(visit(), DESK, {"workload.of recipe": "agents"})
    assert comes.state.table["workload"] == STARTING_POINTS["agents"].table["workload"]
    other = actions.turn(visit(), DESK, {"scheduler.kind": "orca"})
    assert other.state.table["scheduler"]["kind"] == "orca"
    assert other.state.table["scheduler"]["max_num_seqs"] == 256


@pytest.mark.parametrize(
    "changes",
    [{"allocator.2.block_size": 0}, {"seed": "x"}, {"model.max_model_len": -1},
     {"allocator.1.label": "paged", "allocator.2.label": "paged"}],
)  # fmt: skip
def test_invalid_change_is_refused_and_changes_nothing(changes: dict[str, Any]) -> None:
    before = visit()
    with pytest.raises(InputError):
        actions.turn(before, DESK, changes)
    assert before == visit()


def test_allocators_are_added_and_removed() -> None:
    here = visit()
    for _ in range(3):
        here = actions.add_allocator(here, DESK)
    tables = here.state.table["allocator"]
    assert len({each["kind"] for each in tables}) == len(tables) == 6
    for _ in range(9):
        here = actions.remove_allocator(here, DESK, 0)
    assert here.state.table["allocator"] == tables[-1:]


def test_tour_and_other_scenarios_have_separate_pinned_runs() -> None:
    here = actions.pin(visit(), DESK)
    stop = actions.begin(here, DESK, f"{TOUR}{STOPS[0]}")
    assert stop.pins == ()
    again = actions.pin(stop, DESK)
    assert actions.begin(again, DESK, f"{TOUR}{STOPS[1]}").pins == again.pins
    assert actions.begin(again, DESK, "chat").pins == ()


def test_pinned_runs_are_added_and_removed() -> None:
    here = actions.pin(actions.pin(visit(), DESK), DESK)
    assert here.pins == ("from=chat",)
    for rate in range(1, 9):
        turned = actions.turn(here, DESK, {"workload.arrivals.rate_per_s": rate + 10})
        here = actions.pin(turned, DESK)
        assert pin_button(here, here.pins[-1]) == ("Pinned", False)
    assert len(here.pins) == MOST_PINS
    assert pin_button(here, "another") == (f"{MOST_PINS} pinned, at most", False)
    assert pin_button(visit(), "another") == ("Pin", True)
    assert short_name(here.pins[1]) == "chat, Arrival rate, 1/s: 11"
    assert actions.unpin(here, 0).pins == here.pins[1:]


@pytest.mark.parametrize("stop", STOPS)
def test_suggested_changes_of_a_tour_stop_can_be_applied(stop: str) -> None:
    here = actions.begin(visit(), DESK, f"tour:{stop}")
    for index in range(len(find_stop(stop).tries)):
        tried = actions.attempt(here, DESK, index)
        assert tried.state != here.state
        assert PageVisit.at(tried.query(DESK), DESK) == tried


@pytest.mark.parametrize("base", list(STARTING_POINTS))
def test_explorer_can_sweep_every_number(base: str) -> None:
    here = visit(base)
    knobs = dict(numbers(here.state.table))
    assert knobs
    for key, value in knobs.items():
        low, high = ends(value)
        task = DESK.sweep_task(here.state, actions.sweep(here, DESK, key, low, high, 5).sweep)
        assert task.key == key
        assert low <= min(task.values) < max(task.values) <= high


@pytest.mark.parametrize("ends_", [(5, 1, 3), (1, 5, 1), ("a", "b", 3), (1, 2, "many")])
def test_explorer_refuses_an_invalid_sweep_range(ends_: tuple[Any, ...]) -> None:
    with pytest.raises(InputError):
        actions.sweep(visit(), DESK, "scheduler.max_num_seqs", *ends_)


def test_explorer_control_titles_are_unique() -> None:
    for base, point in STARTING_POINTS.items():
        titles = knob_titles(dict(numbers(point.table)), point.table)
        assert len(set(titles.values())) == len(titles), base
    table = STARTING_POINTS["chat"].table
    titles = knob_titles(dict(numbers(table)), table)
    assert titles["workload.arrivals.rate_per_s"] == "Arrival rate, 1/s"
    alike = {"memory.kv_cache_tokens": 1, "draft.kv_cache_tokens": 2}
    assert set(knob_titles(alike, {}).values()) == {f"Pool, tokens ({key})" for key in alike}
