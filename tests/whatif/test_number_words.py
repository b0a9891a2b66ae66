"""Numbers of summary.json in the words of a verdict."""

import pytest

from kvsim.whatif.capacity.objectives import COUNTS, LATENCIES, RATES, STATISTICS
from kvsim.whatif.intervals import Ratio, ratio_text
from kvsim.whatif.number_words import in_words


@pytest.mark.parametrize(
    "name", [*COUNTS, *RATES, *(f"{one}.{of}" for one in LATENCIES for of in STATISTICS)]
)
def test_every_goal_has_a_name_in_words(name: str) -> None:
    words = in_words(name)
    assert "_" not in words
    assert "." not in words
    assert words != name


def test_usual_goals_have_names_in_words() -> None:
    assert in_words("e2e_s.mean") == "mean end-to-end time"
    assert in_words("ttft_s.p99") == "p99 time to first token"
    assert in_words("tpot_s.p50") == "median time per output token"


def test_ratio_of_float_noise_is_the_same() -> None:
    noise = Ratio(-1.7e-13, -9e-13, 5.6e-13)
    assert noise.same
    assert ratio_text(noise) == "0 %"
    assert ratio_text(Ratio(0, 0, 0)) == "0 %"
    assert not Ratio(-0.17, -0.26, -0.076).same
    assert ratio_text(Ratio(-0.17, -0.26, -0.076)) == "-17 % (-26 to -7.6)"
