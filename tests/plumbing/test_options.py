"""Faults of options: the one that explains most, at its full name, with the keys of its table."""

import pytest
from pydantic import Field

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options


class Inner(Options):
    width: int = 1
    rates: tuple[float, ...] = ()


class Outer(Options):
    name: str
    count: int = 1
    rate: float = 1.0
    inner: Inner = Inner()
    more: tuple[Inner, ...] = ()
    facts: dict[str, int] = Field(default_factory=dict)


def fault(table: dict[str, object]) -> str:
    with pytest.raises(InputError) as caught:
        Outer.parse(table, "top")
    return str(caught.value)


def test_an_unknown_key_names_the_keys_of_its_own_table() -> None:
    message = fault({"name": "a", "inner": {"widht": 3}})
    assert message.startswith("top.inner.widht: unknown key")
    assert "did you mean 'width'?" in message
    assert "known keys: rates, width" in message
    assert "known keys: rates, width" in fault({"name": "a", "more": [{}, {"x": 1}]})
    assert "top.more.1.x" in fault({"name": "a", "more": [{}, {"x": 1}]})


def test_a_typo_is_told_before_the_key_that_is_missing_for_it() -> None:
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
def test_numbers_that_64_bits_or_arithmetic_cannot_hold(
    table: dict[str, object], where: str
) -> None:
    message = fault({"name": "a", **table})
    assert message.startswith(where)
    assert len(message) < 400


def test_numbers_within_bounds_are_as_they_were() -> None:
    table = {"name": "a", "count": (1 << 63) - 1, "rate": 1e-30, "inner": {"rates": [0.0, 1e30]}}
    assert Outer.parse(table, "").model_dump(exclude_defaults=True)["count"] == (1 << 63) - 1
