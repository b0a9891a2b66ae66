"""The victim that each rule chooses out of three sequences, and where two are equal."""

import pytest

from kvsim.engine.policies.victims import VICTIMS
from kvsim.request import Request
from kvsim.sequence import Sequence

# Admitted in this order: (id, arrival, priority, computed tokens, those of them that others share).
DIFFERENT = (("a", 0, 0, 300, 280), ("b", 0, 2, 90, 0), ("c", 0, 1, 100, 0))
TIED = (("a", 1, 1, 50, 20), ("b", 0, 1, 50, 20), ("c", 1, 1, 50, 20))


Row = tuple[str, int, int, int, int]


def chosen(rule: str, rows: tuple[Row, ...]) -> str:
    """The id of the sequence that is preempted."""
    running = {
        Sequence(Request(name, arrival_ps, 10, 10, priority=priority), arrival_ps): counts
        for name, arrival_ps, priority, *counts in rows
    }
    victim = VICTIMS.get(rule)().choose(
        running, lambda seq: running[seq][0], lambda seq: running[seq][1]
    )
    return victim.request.id


@pytest.mark.parametrize(
    ("rule", "of_different", "of_tied"),
    [
        ("latest", "c", "c"),
        ("lowest-priority", "b", "a"),
        ("least-computed", "b", "c"),
        ("least-recomputed", "a", "c"),
    ],
)
def test_victim_rules_choose_as_documented(rule: str, of_different: str, of_tied: str) -> None:
    assert chosen(rule, DIFFERENT) == of_different
    assert chosen(rule, TIED) == of_tied
