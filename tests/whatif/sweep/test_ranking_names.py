"""Names of measures: those of the sweep's table, of `--slo` and of summary.json."""

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.whatif.sweep.ranking import measure_named


def test_both_names_of_a_latency_are_one_measure() -> None:
    assert measure_named("ttft_s.p99") is measure_named("ttft_p99")
    with pytest.raises(InputError, match="unknown measure"):
        measure_named("ttft_s.p98")


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("queue_s.p99", "lower"),
        ("itl_s.mean", "lower"),
        ("waiting_mean", "lower"),
        ("memory.time_mean.used", "higher"),
        ("offloading.loaded_tokens", "lower"),
        ("prefix_cache.hit_tokens", "higher"),
    ],
)
def test_every_number_of_a_summary_can_rank_settings(name: str, better: str) -> None:
    """The measure's name is the number's key, under which a run's row has it."""
    measure = measure_named(name)
    assert measure.better == better
    row: dict[str, object] = {}
    place = row
    *outer, last = name.split(".")
    for part in outer:
        place = place.setdefault(part, {})  # type: ignore[assignment]
    place[last] = 3.0
    assert measure.value(row) == 3.0
    assert measure.value({}) is None


@pytest.mark.parametrize(
    ("short", "key"),
    [
        ("queue_p99", "queue_s.p99"),
        ("itl_mean", "itl_s.mean"),
        ("waiting", "waiting_mean"),
        ("used", "memory.time_mean.used"),
        ("replicas", "changes.replicas_mean"),
    ],
)
def test_short_measure_names_equal_those_of_questions(short: str, key: str) -> None:
    assert measure_named(short).title == key


def test_summary_keys_that_are_no_numbers_cannot_rank_settings() -> None:
    for name in ("label", "memory", "ttft_s", "notes"):
        with pytest.raises(InputError, match=r"queue_s\.p99"):
            measure_named(name)
