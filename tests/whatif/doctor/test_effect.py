"""Which effects of a change count as a cure."""

from typing import Any

from kvsim.whatif.doctor.effect import Effect, effect_of


def rows(*e2e_s: float, ttft_s: float = 1.0, refused: int = 0, hits: int = 0) -> Any:
    return [
        {
            "e2e_s.mean": value,
            "ttft_s.mean": ttft_s,
            "tpot_s.mean": 0.02,
            "requests.submitted": 100,
            "requests.rejected": refused,
            "prefix_cache.query_tokens": 1000,
            "prefix_cache.hit_tokens": hits,
        }
        for value in e2e_s
    ]


def effect(first: Any, second: Any) -> Effect:
    return effect_of(first, second)


def test_five_percent_less_time_beyond_chance_counts_as_a_cure() -> None:
    base = rows(10.0, 11.0, 9.0)
    assert effect(base, rows(9.0, 9.9, 8.1)).helps
    assert not effect(base, rows(9.8, 10.78, 8.82)).helps  # two per cent
    assert not effect(base, rows(5.0, 13.0, 9.0)).helps  # chance


def test_earlier_first_token_helps_only_without_a_later_end() -> None:
    base = rows(30.0, 31.0, ttft_s=4.0)
    assert effect(base, rows(30.0, 31.0, ttft_s=2.5)).helps
    assert not effect(base, rows(30.0, 31.0, ttft_s=3.5)).helps
    assert not effect(base, rows(31.5, 32.55, ttft_s=2.5)).helps
    assert not effect(rows(30.0, ttft_s=0.4), rows(30.0, ttft_s=0.1)).helps


def test_cure_that_refuses_more_requests_does_not_help() -> None:
    worse = effect(rows(10.0, 10.0), rows(1.0, 1.0, refused=1))
    assert worse.served < 0
    assert not worse.helps


def test_serving_refused_requests_counts_as_a_cure() -> None:
    better = effect(rows(1.0, 1.0, refused=40), rows(3.0, 3.0, hits=250))
    assert better.helps
    assert better.gain == 0.4
    assert better.hit_points == 25.0


def test_unsure_effects_and_trade_offs_do_not_count_as_cures() -> None:
    base = rows(10.0, 10.0)
    assert effect(base, rows(5.0, 9.9)).unsure
    bought = effect(rows(30.0, 31.0, ttft_s=4.0), rows(24.0, 25.0, ttft_s=9.0))
    assert bought.trades
    assert not bought.helps
    assert not bought.unsure
