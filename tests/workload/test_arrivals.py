import math
from typing import Any

import numpy as np
import pytest

from kvsim.followers import Followers
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.workload.arrivals import ARRIVALS, Schedule
from kvsim.workload.random import generator

N = 40_000


def schedule(table: dict[str, Any], count: int = N, seed: int = 1) -> Schedule:
    return ARRIVALS.parse(table, "arrivals").schedule(count, generator(seed, "test"))


def gaps_s(table: dict[str, Any]) -> np.ndarray:
    return np.diff(schedule(table).arrival_ps) / 1e12


def test_every_process_starts_in_order_and_repeats_by_seed(arrivals: dict[str, Any]) -> None:
    one, same = schedule(arrivals, 500), schedule(arrivals, 500)
    assert len(one.arrival_ps) == 500
    assert one.arrival_ps.dtype == np.int64
    assert one.arrival_ps[0] >= 0
    assert (np.diff(one.arrival_ps) >= 0).all()
    assert (one.arrival_ps == same.arrival_ps).all()
    if one.after is not None and one.think_ps is not None:
        assert (one.after < np.arange(500)).all()
        assert (one.think_ps >= 0).all()


def test_random_processes_differ_by_seed(arrivals: dict[str, Any]) -> None:
    if arrivals["kind"] in ("constant", "at-once", "closed-loop"):
        pytest.skip("its starts are not random")
    assert (schedule(arrivals, 50).arrival_ps != schedule(arrivals, 50, seed=2).arrival_ps).any()


@pytest.mark.parametrize(
    ("table", "cv"),
    [
        ({"kind": "poisson", "rate_per_s": 4.0}, 1.0),
        ({"kind": "gamma", "rate_per_s": 4.0, "cv": 2.0}, 2.0),
        ({"kind": "gamma", "rate_per_s": 4.0, "cv": 0.5}, 0.5),
        (
            {"kind": "weibull", "rate_per_s": 4.0, "shape": 0.8},
            math.sqrt(math.gamma(1 + 2 / 0.8) / math.gamma(1 + 1 / 0.8) ** 2 - 1),
        ),
    ],
)
def test_renewal_processes_have_their_rate_and_cv(table: dict[str, Any], cv: float) -> None:
    gaps = gaps_s(table)
    assert gaps.mean() == pytest.approx(0.25, abs=4 * 0.25 * cv / math.sqrt(N))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_constant_arrivals_do_not_accumulate_rounding_errors() -> None:
    starts = schedule({"kind": "constant", "rate_per_s": 3.0}, 3001).arrival_ps
    assert starts[3000] == 1000 * 10**12
    assert starts[1] == 333_333_333_333


def test_on_off_has_the_mean_rate_of_its_periods_and_is_bursty() -> None:
    table = {
        "kind": "on-off",
        "rate_per_s": 20.0,
        "off_rate_per_s": 2.0,
        "on": {"kind": "fixed", "seconds": 5.0},
        "off": {"kind": "fixed", "seconds": 15.0},
    }
    starts = schedule(table).arrival_ps / 1e12
    assert N / starts[-1] == pytest.approx((20 * 5 + 2 * 15) / 20, rel=0.03)
    on = (starts % 20) < 5
    assert on.mean() == pytest.approx(100 / 130, abs=0.01)


def test_on_off_arrivals_with_empty_on_periods_are_refused() -> None:
    table = {
        "kind": "on-off",
        "rate_per_s": 1.0,
        "on": {"kind": "fixed", "seconds": 0.0},
        "off": {"kind": "fixed", "seconds": 1000.0},
    }
    with pytest.raises(InputError, match="on periods are too short"):
        schedule(table, 10)


def test_piecewise_rates_hold_in_each_piece() -> None:
    pieces = [(10.0, 2.0), (5.0, 0.0), (5.0, 12.0)]
    table = {
        "kind": "piecewise",
        "pieces": [{"duration_s": d, "rate_per_s": r} for d, r in pieces],
    }
    starts = schedule(table).arrival_ps / 1e12
    rounds = starts[-1] // 20
    phase = starts[starts < rounds * 20] % 20
    assert not ((phase >= 10) & (phase < 15)).any()
    assert (phase < 10).sum() / rounds == pytest.approx(20, rel=0.03)
    assert (phase >= 15).sum() / rounds == pytest.approx(60, rel=0.03)


def test_sinusoidal_counts_follow_the_integral() -> None:
    table = {"kind": "sinusoidal", "rate_per_s": 5.0, "amplitude": 0.8, "period_s": 100.0}
    starts = schedule(table).arrival_ps / 1e12
    rounds = starts[-1] // 100
    phase = starts[starts < rounds * 100] % 100
    first_half = 5.0 * (50 + 0.8 * 100 / math.pi)
    assert (phase < 50).sum() / rounds == pytest.approx(first_half, rel=0.03)
    assert len(phase) / rounds == pytest.approx(500, rel=0.03)


def test_closed_loop_user_sends_after_the_previous_answer() -> None:
    table = {"kind": "closed-loop", "num_users": 3, "think": {"kind": "fixed", "seconds": 2.0}}
    loop = schedule(table, 8)
    assert loop.after is not None
    assert loop.think_ps is not None
    assert loop.after.tolist() == [-1, -1, -1, 0, 1, 2, 3, 4]
    assert loop.think_ps.tolist() == [0, 0, 0] + [2 * 10**12] * 5
    ramp = schedule({**table, "ramp_s": 3.0}, 3)
    assert ramp.arrival_ps.tolist() == [0, 10**12, 2 * 10**12]


def test_next_request_of_a_closed_loop_goes_to_the_first_free_user() -> None:
    first, second = Request("r0", 0, 8, 100), Request("r1", 0, 8, 1)
    third = Request("r2", 0, 8, 1, after="r0", any_user=True)
    turn = Request("r2b", 0, 8, 1, after="r2")
    fourth = Request("r3", 0, 8, 1, after="r1", any_user=True)
    followers = Followers([first, second, third, turn, fourth])
    assert followers.after(second) == [third]  # not r3, although its `after` is r1
    assert followers.after(third) == [turn]  # a conversation goes on with its own user
    assert followers.after(turn) == [fourth]
    assert followers.after(first) == followers.after(fourth) == []


def test_arrivals_that_outlast_the_clock_are_refused() -> None:
    with pytest.raises(InputError, match="lasts too long"):
        schedule({"kind": "poisson", "rate_per_s": 1e-6}, 100)


def test_unknown_kinds_and_keys_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'poisson'"):
        ARRIVALS.parse({"kind": "poison", "rate_per_s": 1}, "workload.arrivals")
    with pytest.raises(InputError, match="known keys: rate_per_s"):
        ARRIVALS.parse({"kind": "poisson", "rate_per_s": 1, "rate": 1}, "workload.arrivals")
    with pytest.raises(InputError, match=r"workload\.arrivals\.rate_per_s"):
        ARRIVALS.parse({"kind": "poisson", "rate_per_s": 0}, "workload.arrivals")
