"""Measurement windows: their ends, their exact numbers, and notes on a run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenarios import steady

from kvsim import simulate
from kvsim.memory.ledger import Usage
from kvsim.plumbing.errors import InputError
from kvsim.results.measurement import WindowOptions, measure_window
from kvsim.results.recorder import Recorder
from kvsim.results.steady import batch_means, find_steady, mser
from kvsim.results.summary import NoWindow
from kvsim.scenario import Scenario

SCENARIO = steady(200)
THINK = {"kind": "fixed", "seconds": 0.1}


@pytest.fixture(scope="module")
def result():
    return simulate(SCENARIO)


def with_(**changes):
    return {**SCENARIO, **changes}


def workload(**changes):
    return {**SCENARIO["workload"], **changes}


# --- where a run is steady ------------------------------------------------------------------------


@pytest.mark.parametrize("ramp", [0, 5, 40, 90])
def test_mser_cuts_the_warm_up_and_little_more(ramp):
    rng = np.random.default_rng(3)
    level = np.concatenate([np.linspace(0, 100, ramp, endpoint=False), np.full(200 - ramp, 100.0)])
    cut = mser(level + rng.normal(0, 1, 200))
    assert ramp - 5 <= cut <= ramp + 20


def test_a_series_that_never_settles_has_no_steady_part():
    assert mser(np.linspace(0, 100, 200)) is None
    found = find_steady(np.arange(0, 201) * 10**12, np.arange(200), 0, 200 * 10**12)
    assert found.reason == "the number of running sequences never settled"


def test_a_constant_series_is_steady_from_its_start():
    assert mser(np.full(200, 7.0)) == 0


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 50)), min_size=1, max_size=30))
def test_batch_means_preserve_the_integral(stretches):
    times = np.concatenate([[0], np.cumsum([length for length, _ in stretches])])
    values = np.array([value for _, value in stretches])
    edges = np.linspace(0, times[-1], 8)
    means = batch_means(times, values, edges)
    area = sum(length * value for length, value in stretches)
    assert np.isclose((means * np.diff(edges)).sum(), area)


def test_closed_loop_window_ends_when_a_tenth_of_users_finished():
    closed = workload(arrivals={"kind": "closed-loop", "num_users": 20, "think": THINK})
    (run,) = simulate(with_(workload=closed, allocator=[{"kind": "paged"}])).runs
    window, requests = run.summary["window"], run.requests
    assert window["found"] == "steady"
    # After the last start each answer leaves a user idle; the window ends by the third.
    ends = np.sort(requests["finish_ps"].to_numpy())[-20:] / 1e12
    assert ends[0] < window["end_s"] <= ends[2]


# --- its numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "extra", [{}, {"scheduler": {"kind": "continuous", "async_scheduling": True}}]
)
def test_window_summary_is_equal_for_runs_of_steps_and_single_steps(extra):
    leaps, steps = (
        simulate(with_(max_steps=most, step_time="roofline", **extra)) for most in (None, 1)
    )
    for fast, slow in zip(leaps.runs, steps.runs, strict=True):
        assert fast.summary["window"]["found"] == "steady"
        assert fast.summary["window"] == slow.summary["window"]


def test_window_over_the_whole_run_equals_the_summary(result):
    whole = simulate(with_(window={"from_s": 0.0}))
    for run in whole.runs:
        window, summary = run.summary["window"], run.summary
        assert window["found"] == "given"
        assert window["requests"] == 200
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            assert window[name] == summary[name]
        for name in ("running_mean", "requests_per_s", "output_tokens_per_s"):
            assert window[name] == pytest.approx(summary[name], rel=1e-9)
        assert window["memory"]["time_mean"] == pytest.approx(summary["memory"]["time_mean"])


def test_window_means_equal_a_sum_over_single_steps():
    run = simulate(with_(max_steps=1, window={"from_s": 5.0, "to_s": 15.0})).runs[2]
    window, memory = run.summary["window"], run.memory
    origin = run.requests["arrival_ps"].min()
    start, end = (origin + round(window[key] * 1e12) for key in ("start_s", "end_s"))
    assert 5.0 <= window["start_s"] < 5.5
    assert 14.5 < window["end_s"] <= 15.0
    inside = memory[(memory["start_ps"] >= start) & (memory["end_ps"] <= end)]
    spans = inside["end_ps"] - inside["start_ps"]
    assert spans.sum() == end - start
    capacity = run.summary["memory"]["capacity_bytes"]
    for name, share in window["memory"]["time_mean"].items():
        by_hand = (inside[f"{name}_bytes"] / capacity * spans).sum() / spans.sum()
        assert share == pytest.approx(by_hand, abs=1e-12)
    by_hand = (inside["num_running"] * spans).sum() / spans.sum()
    assert window["running_mean"] == pytest.approx(by_hand)


def test_impossible_measurement_window_gives_a_reason():
    late = simulate(with_(window={"from_s": 1e6}))
    assert late.runs[0].summary["window"] == {
        "found": "none", "reason": "nothing came or left between its edges",
    }  # fmt: skip
    few = simulate(with_(workload=workload(num_requests=20)))
    assert "fewer than 100 requests" in few.runs[0].summary["window"]["reason"]
    burst = simulate(with_(workload=workload(arrivals={"kind": "at-once"})))
    assert "only drains" in burst.runs[0].summary["window"]["reason"]
    with pytest.raises(InputError, match="to_s = 1 is not after from_s = 2"):
        Scenario.from_table(with_(window={"from_s": 2.0, "to_s": 1.0}))


# --- what is said of a run ------------------------------------------------------------------------


def abouts(run):
    return {note["about"] for note in run.summary["notes"]}


def test_window_of_zero_duration_has_no_measurement():
    """Sequences arrive and leave in steps that take no time."""
    recorder = Recorder(1 << 20)
    recorder.arrived(0)
    usage = Usage(idle=1 << 20)
    for start_s, seconds, running in ((0, 2, 1), (2, 0, 2), (2, 0, 3), (2, 3, 3)):
        recorder.interval(start_s * 10**12, 1, seconds * 10**12, 0, usage, None, running, 0)
    found = measure_window(recorder, WindowOptions(from_s=1.5, to_s=2.5))
    assert found == NoWindow(reason="nothing came or left between its edges")


def test_growing_queue_is_distinguished_from_a_stable_one():
    slow = simulate(with_(workload=workload(arrivals={"kind": "poisson", "rate_per_s": 30.0})))
    assert all("saturated" in abouts(run) for run in slow.runs)
    calm = simulate(with_(workload=workload(arrivals={"kind": "poisson", "rate_per_s": 1.0})))
    assert not any("saturated" in abouts(run) for run in calm.runs)


@pytest.mark.parametrize("rate_per_s", [0.5, 0.02])
def test_growing_queue_in_the_steady_window_is_noted(rate_per_s):
    """A queue grew from 0 to 125 in a window called steady, which its later turns hid."""
    sessions = {
        "kind": "sessions", "num_sessions": 150, "max_context": "max_model_len",
        "arrivals": {"kind": "poisson", "rate_per_s": rate_per_s},
        "turns": {"kind": "geometric", "mean": 4.0}, "think": {"kind": "exponential", "mean_s": 10},
        "prompt": {"kind": "fixed", "tokens": 100}, "output": {"kind": "fixed", "tokens": 150},
    }  # fmt: skip
    made = with_(workload=sessions, allocator=[{"kind": "max-buffer"}])
    made["memory"] = {"kv_cache_tokens": 2 * 4096}
    (run,) = simulate(made).runs
    busy = rate_per_s == 0.5
    assert "saturated" not in abouts(run)
    assert run.summary["window"]["found"] == "steady"
    assert ("window" in abouts(run)) == busy
    if busy:
        (note,) = (each for each in run.summary["notes"] if each["about"] == "window")
        assert note["text"].startswith("The queue grew all through the steady part: ")
        assert run.summary["window"]["waiting_mean"] > 10


def test_a_prefix_cache_without_shareable_content_is_named(result):
    paged = result["paged"]
    assert "prefix-cache" in abouts(paged)
    assert abouts(result["doubling"]) <= {"saturated"}
    shared = workload(prefixes=[{"tokens": {"kind": "fixed", "tokens": 64}}])
    assert "prefix-cache" not in abouts(simulate(with_(workload=shared))["paged"])


def test_notes_give_the_reasons_of_refusals():
    run = simulate(with_(memory={"kv_cache_tokens": 320}))["max-buffer"]
    (note,) = (note for note in run.summary["notes"] if note["about"] == "refused")
    assert note["text"].startswith("All 200 requests were refused, the first because its buffer")
    lone = with_(memory={"kv_cache_tokens": 64}, workload=workload(num_requests=1))
    (note,) = (note for note in simulate(lone)["paged"].summary["notes"])
    assert note["text"].startswith("The only request was refused because it needs more KV blocks")


def test_users_without_a_request_are_noted():
    arrivals = {"kind": "closed-loop", "num_users": 40, "think": THINK}
    crowd = workload(num_requests=30, arrivals=arrivals)
    notes = simulate(with_(workload=crowd)).scenario["provenance"]["notes"]
    assert any("40 users and 30 starts for them, so 10 of them never ask" in note for note in notes)


def test_stored_scenario_contains_defaults_that_size_the_pool():
    plain = {key: value for key, value in SCENARIO.items() if key != "memory"}
    scenario = simulate(plain).scenario
    pool = Scenario.from_table(plain).memory.utilization
    assert scenario["memory"]["gpu_memory_utilization"] == pool
    assert scenario["model"]["max_model_len"] == 4096
    assert "gpu_memory_utilization" not in simulate(SCENARIO).scenario["memory"]
