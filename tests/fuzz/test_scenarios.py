"""Random scenarios over all options, always the same; `make fuzz` makes new ones."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzzing.laws import check
from support.fuzzing.scenarios import scenario


@settings(max_examples=8, deadline=None, derandomize=True)
@given(number=st.integers(0, 10**9))
def test_random_scenario_runs_with_its_invariants_or_is_refused_in_one_line(number: int) -> None:
    check(scenario(Random(f"scenarios:{number}")))


def test_a_third_of_the_random_scenarios_run() -> None:
    """A generator of scenarios that are always refused would test nothing."""
    ran = [check(scenario(Random(f"scenarios:{number}"))) for number in range(6)]
    assert sum(ran) >= 2
