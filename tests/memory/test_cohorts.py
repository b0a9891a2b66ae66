"""Cohorts of decoders, held against counting step by step."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.memory.cohorts import Cohorts
from kvsim.request import Request
from kvsim.sequence import Sequence

BASES = st.lists(st.integers(-20, 40), max_size=12)


def made(size: int, bases: list[int]) -> Cohorts:
    cohorts = Cohorts(size)
    request = Request("r", 0, 10, 10)
    for base in bases:
        cohorts.join(Sequence(request, 0), base)
    return cohorts


@settings(max_examples=300, deadline=None)
@given(
    size=st.integers(1, 8),
    bases=BASES,
    blocks=st.integers(0, 60),
    clock=st.integers(0, 30),
    limit=st.integers(1, 50),
)
def test_steps_within_free_blocks_are_the_most_that_fit(
    size: int, bases: list[int], blocks: int, clock: int, limit: int
) -> None:
    """To the last block: a step that can still be taken is no preemption."""
    left, steps = blocks, 0
    while steps < limit:
        left -= sum((base + clock + steps) % size == 0 for base in bases)
        if left < 0:
            break
        steps += 1
    assert made(size, bases).steps_within(blocks, clock, limit) == steps


@settings(max_examples=200, deadline=None)
@given(size=st.integers(1, 8), bases=BASES, clock=st.integers(0, 30), steps=st.integers(0, 30))
def test_cohorts_start_blocks_in_the_same_steps_as_single_stepping(
    size: int, bases: list[int], clock: int, steps: int
) -> None:
    found = [(t, len(cohort)) for t, cohort in made(size, bases).block_starts(clock, steps)]
    counted = (
        (t, sum((base + clock + t - 1) % size == 0 for base in bases)) for t in range(1, steps + 1)
    )
    assert found == [(t, number) for t, number in counted if number]
