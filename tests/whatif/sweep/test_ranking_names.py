"""A measure is named as the sweep's table, `--slo` or summary.json has it."""

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.whatif.sweep.ranking import measure_named


def test_both_names_of_a_latency_are_one_measure() -> None:
    assert measure_named("ttft_s.p99") is measure_named("ttft_p99")
    with pytest.raises(InputError, match="unknown measure"):
        measure_named("ttft_s.p98")
