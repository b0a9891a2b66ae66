"""Pairwise products cover every pair, and the whole product is available."""

from typing import Any

import pytest
from support.cases import ALLOCATOR_TABLES, SCHEDULERS
from support.pairs import WHOLE, kind_of, pairs


@pytest.fixture(autouse=True)
def thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WHOLE, raising=False)


def values(cases: list[Any]) -> list[tuple[Any, ...]]:
    return [case.values for case in cases]


def test_pairwise_products_cover_every_pair_and_setting() -> None:
    found = values(pairs(ALLOCATOR_TABLES, SCHEDULERS))
    kinds = [{kind_of(table) for table in factor} for factor in (ALLOCATOR_TABLES, SCHEDULERS)]
    assert {(kind_of(a), kind_of(b)) for a, b in found} == {
        (a, b) for a in kinds[0] for b in kinds[1]
    }
    assert all(any(table == each for each, _ in found) for table in ALLOCATOR_TABLES)
    assert all(any(table == each for _, each in found) for table in SCHEDULERS)
    assert len(found) < len(ALLOCATOR_TABLES) * len(SCHEDULERS) / 4


def test_pairwise_products_of_three_factors_cover_allowed_pairs() -> None:
    found = values(pairs("ab", "cde", "fgh", allowed=lambda *case: case[:2] != ("a", "c")))
    assert {case[:2] for case in found} == {(a, b) for a in "ab" for b in "cde"} - {("a", "c")}
    assert {case[1:] for case in found} == {(b, c) for b in "cde" for c in "fgh"}
    assert len(found) < 13


def test_environment_variable_restores_the_full_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHOLE, "1")
    assert len(pairs("ab", "cde", "fgh")) == 18
