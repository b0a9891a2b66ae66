"""Bisection finds the edge of any threshold, whether the objective holds below or above it."""

from hypothesis import given
from hypothesis import strategies as st

from kvsim.whatif.capacity.bisection import Bounds, Bracket, bisect


def answered(bounds: Bounds, edge: float) -> tuple[Bracket, int]:
    asking, asked = bisect(bounds), 0
    value = next(asking)
    while True:
        asked += 1
        assert bounds.least <= value <= bounds.most
        try:
            value = asking.send(value <= edge if bounds.largest else value >= edge)
        except StopIteration as end:
            return end.value, asked


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4), st.booleans())
def test_bisection_bracket_contains_the_edge_within_tolerance(
    start: float, edge: float, up: bool
) -> None:
    bounds = Bounds(start, 1e-3, 1e6, up, False, 0.02)
    bracket, asked = answered(bounds, edge)
    assert bracket.kept is not None
    assert bracket.lost is not None
    low, high = (bracket.kept, bracket.lost) if up else (bracket.lost, bracket.kept)
    assert low <= edge <= high
    assert high <= low * 1.02
    assert asked < 40


@given(st.integers(1, 5000), st.integers(2, 100_000), st.booleans())
def test_bisection_over_integers_finds_the_exact_edge(start: int, edge: int, up: bool) -> None:
    bracket, _ = answered(Bounds(start, 1, 200_000, up, True, 0.0), edge)
    assert bracket == (Bracket(edge, edge + 1) if up else Bracket(edge, edge - 1))


def test_bisection_without_an_edge_within_bounds_leaves_one_side_none() -> None:
    assert answered(Bounds(1.0, 0.1, 10.0, True, False, 0.1), 99.0)[0] == Bracket(10.0, None)
    assert answered(Bounds(1.0, 0.1, 10.0, True, False, 0.1), 0.01)[0] == Bracket(None, 0.1)
