"""Faults of options: the one that explains most, at its full name, with the keys of its table."""

from typing import Any, Literal

import pytest
from pydantic import Field

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.scenario import Scenario


class Inner(Options):
    width: int = 1
    rates: tuple[float, ...] = ()


class Outer(Options):
    name: str
    count: int = 1
    seats: int = Field(4, ge=1, le=10_000)
    share: float = Field(0.5, gt=0, lt=1)
    policy: Literal["fcfs", "lpm"] = "fcfs"
    on: bool = True
    rate: float = 1.0
    inner: Inner = Inner()
    more: tuple[Inner, ...] = ()
    facts: dict[str, int] = Field(default_factory=dict)


def fault(table: dict[str, object]) -> str:
    with pytest.raises(InputError) as caught:
        Outer.parse(table, "top")
    return str(caught.value)


def test_unknown_key_error_lists_the_keys_of_its_table() -> None:
    message = fault({"name": "a", "inner": {"widht": 3}})
    assert message.startswith("top.inner.widht: unknown key")
    assert "did you mean 'width'?" in message
    assert "known keys: rates, width" in message
    assert "known keys: rates, width" in fault({"name": "a", "more": [{}, {"x": 1}]})
    assert "top.more.1.x" in fault({"name": "a", "more": [{}, {"x": 1}]})


def test_unknown_key_is_reported_before_the_missing_key() -> None:
    message = fault({"nmae": "a"})
    assert message.startswith("top.nmae: unknown key; did you mean 'name'?")
    assert fault({}).startswith("top.name: required key is missing")


@pytest.mark.parametrize(
    ("table", "where"),
    [
        ({"count": 10**20}, "top.count"),
        ({"count": 10**6000}, "top.count"),
        ({"count": "9" * 25}, "top.count"),
        ({"rate": 1e200}, "top.rate"),
        ({"rate": -1e-200}, "top.rate"),
        ({"rate": float("nan")}, "top.rate"),
        ({"inner": {"rates": [1.0, 1e31]}}, "top.inner.rates"),
        ({"facts": {"x": 1 << 63}}, "top.facts"),
    ],
)
def test_numbers_beyond_64_bits_or_float_range_are_refused(
    table: dict[str, object], where: str
) -> None:
    message = fault({"name": "a", **table})
    assert message.startswith(where)
    assert len(message) < 400


def test_numbers_within_bounds_are_unchanged() -> None:
    table = {"name": "a", "count": (1 << 63) - 1, "rate": 1e-30, "inner": {"rates": [0.0, 1e30]}}
    assert Outer.parse(table, "").model_dump(exclude_defaults=True)["count"] == (1 << 63) - 1


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("seats", 0, "too small; got 0; limit at least 1"),
        ("seats", 20_000, "too large; got 20000; limit at most 10,000"),
        ("seats", 1.5, "not a whole number; got 1.5"),
        ("seats", "none", "not a whole number; got none"),
        ("share", 0, "too small; got 0; limit more than 0.0"),
        ("share", 1, "too large; got 1; limit less than 1.0"),
        ("share", "half", "not a number; got half"),
        ("policy", "lifo", "not one of the known values; got lifo; limit 'fcfs' or 'lpm'"),
        ("on", "perhaps", "neither true nor false; got perhaps"),
        ("name", 5, "not text; got 5"),
        ("inner", 5, "not a table; got 5"),
        ("more", 5, "not a list; got 5"),
        ("facts", 5, "not a table; got 5"),
    ],
)
def test_wrong_value_is_reported_in_plain_words(key: str, value: Any, said: str) -> None:
    assert fault({"name": "a", key: value}) == f"top.{key}: {said}"


@pytest.mark.parametrize("sign", ["\x1b[31m", "\x1b[8m", "\x9b31m", "\x07", "\x7f", "\r"])
@pytest.mark.parametrize("table", ["label", "text", "name"])
def test_scenario_text_never_sends_terminal_control_codes(
    tables: Any, table: str, sign: str
) -> None:
    allocator = {"kind": "paged"} | ({"label": f"a{sign}b"} if table == "label" else {})
    made = tables(allocator=[allocator])
    if table == "text":
        made["question"] = {"text": f"a{sign}b", "measure": "ttft"}
    if table == "name":
        made["model"] = {"name": f"a{sign}b"}
    with pytest.raises(InputError, match="control character") as caught:
        Scenario.from_table(made)
    assert sign[0] not in str(caught.value)
    assert sign[0] not in str(caught.value.at(f"s.toml:1: allocator 'a{sign}b'"))


def test_printable_characters_are_unchanged(tables: Any) -> None:
    made = tables(allocator=[{"kind": "paged", "label": "é 漢 🚀\tx"}])
    assert Scenario.from_table(made).labels() == ["é 漢 🚀\tx"]


def test_pipeline_parallel_size_above_1024_is_refused(tables: Any) -> None:
    made = tables(allocator=[{"kind": "paged"}])
    made["model"]["pipeline_parallel_size"] = 10**9
    with pytest.raises(InputError, match="too large; got 1000000000; limit at most 1,024"):
        Scenario.from_table(made)
