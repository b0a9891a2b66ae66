"""Products of settings, thinned: every pair of kinds meets, and every setting meets somebody.

The whole product is what `make soak` runs: KVSIM_WHOLE=1.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

import pytest

Kind = Callable[[Any], str]
WHOLE = "KVSIM_WHOLE"


def is_whole() -> bool:
    return os.environ.get(WHOLE) == "1"


def named(setting: Any) -> str:
    """What a test's id says of a setting."""
    return "-".join(map(str, setting.values())) if isinstance(setting, dict) else str(setting)


def kind_of(setting: Any) -> str:
    """The kind of a table, any other setting itself."""
    return str(setting["kind"]) if isinstance(setting, dict) and "kind" in setting else str(setting)


def pairs(
    *factors: Sequence[Any],
    kind: Kind = kind_of,
    allowed: Callable[..., bool] = lambda *case: True,
) -> list[Any]:
    """Cases for `parametrize`, of one setting of each factor: each pair of kinds of two factors is
    in one of them, and each setting, where the product has an allowed case of it. Greedy, and the
    same every time.
    """
    whole = [case for case in product(*factors) if allowed(*case)]
    chosen = whole if is_whole() else list(_covering(whole, kind))
    return [pytest.param(*case, id="-".join(map(named, case))) for case in chosen]


def _covering(cases: list[tuple[Any, ...]], kind: Kind) -> Iterator[tuple[Any, ...]]:
    shown = [set(_shown(case, kind)) for case in cases]
    left = set().union(*shown)
    while left:
        at = max(range(len(cases)), key=lambda number: len(shown[number] & left))
        left -= shown[at]
        yield cases[at]


def _shown(case: tuple[Any, ...], kind: Kind) -> Iterator[tuple[Any, ...]]:
    """What a case shows: its settings, and the pairs of their kinds."""
    yield from ((at, str(setting)) for at, setting in enumerate(case))
    yield from combinations([(at, kind(setting)) for at, setting in enumerate(case)], 2)
