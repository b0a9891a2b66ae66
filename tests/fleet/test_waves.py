"""Ranks that step together: each step lasts as long as the slowest rank's, and ranks without work
run dummy steps.
"""

from typing import Any

import pytest
from support import fleets

from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.results.result import Result
from kvsim.results.routing import WavesSummary
from kvsim.simulation import simulate

MS = 10**9  # ps
TABLE: dict[str, Any] = {
    "model": {"name": "llama-2-7b"},
    "device": {"name": "a100-80gb"},
    "memory": {"kv_cache_tokens": 8192},
    "allocator": [{"kind": "paged"}],
    "step_time": {"kind": "linear", "base_us": 10_000, "prefill_token_us": 1000},
}
TOGETHER = {"kind": "vllm-dp", "lockstep": True}


def served(
    requests: list[Request], replicas: int, router: dict[str, Any], **tables: Any
) -> tuple[Result, dict[str, tuple[int, int]]]:
    """The result, and by request the replica and when its last token came, in ms."""
    table = {**TABLE, "fleet": {"replicas": replicas, "router": router}, **tables}
    result = simulate(table, requests)
    ends = {}
    for number, run in enumerate(result.runs):
        for row in run.requests.itertuples():
            ends[row.id] = number, row.finish_ps // MS
    return result, ends


def waves(result: Result) -> WavesSummary:
    found = result.fleets[0].routing.waves
    assert found is not None
    return found


def test_dp_wave_runs_until_the_ranks_synchronise_without_work() -> None:
    """Five steps with a token, then dummy steps up to the sixteenth; rank 1 has nothing in any."""
    result, ends = served([Request("a", 0, 10, 5)], 2, TOGETHER)
    assert ends == {"a": (0, 20 + 4 * 10)}
    assert (waves(result).waves, waves(result).steps) == (1, 16)
    assert waves(result).dummy_steps == 16 + 11


def test_dp_ranks_may_synchronise_after_each_step() -> None:
    result, _ = served([Request("a", 0, 10, 5)], 2, {**TOGETHER, "dp_sync_interval": 1})
    assert (waves(result).steps, waves(result).dummy_steps) == (5, 5)


def test_request_waits_for_the_dummy_steps_that_ranks_have_launched() -> None:
    """At 60 ms the ranks launch all dummies up to the sixteenth step, which are computed until 170
    ms. Without lockstep the request would begin at once.
    """
    late = [Request("a", 0, 10, 5), Request("b", 65 * MS, 10, 1)]
    _, ends = served(late, 2, TOGETHER)
    assert ends["b"] == (1, 60 + 11 * 10 + 20)
    _, ends = served(late, 2, {"kind": "vllm-dp"})
    assert ends["b"] == (1, 65 + 20)


def test_a_long_prompt_on_one_rank_delays_the_tokens_of_all() -> None:
    """The step from 20 ms on lasts 310 ms for both; a request after the wave starts another."""
    requests = [
        Request("a", 0, 10, 5),
        Request("b", 15 * MS, 300, 1),
        Request("c", 10_000 * MS, 10, 1),
    ]
    result, ends = served(requests, 2, TOGETHER)
    assert ends["a"] == (0, 20 + 310 + 3 * 10)
    assert ends["b"] == (1, 20 + 310)
    assert ends["c"][1] == 10_020
    assert waves(result).waves == 2


@pytest.mark.parametrize(
    "changes",
    [
        *fleets.ENGINES[2:],
        {
            "scheduler": {"kind": "sglang", "disable_overlap_schedule": True},
            "allocator": {"kind": "radix"},
        },
    ],
    ids=str,
)
def test_one_rank_in_lockstep_equals_the_replica_without_lockstep(changes: dict[str, Any]) -> None:
    """One rank waits for no other; with an agreement after each step it runs no dummy steps."""
    alone: dict[str, Any] = {**fleets.TABLE, **changes}
    found = []
    for lockstep in (False, True):
        router = {"kind": "sglang-dp", "lockstep": lockstep}
        result = simulate({**alone, "fleet": {"replicas": 1, "router": router}})
        recorder = result.runs[0].recorder
        assert recorder is not None
        found.append((recorder.finish_ps.tobytes(), result.runs[0].summary.ttft_s))
    assert found[0] == found[1]


def test_dp_lockstep_serves_all_conversations_but_takes_longer() -> None:
    fleet = {"replicas": 3, "router": TOGETHER}
    together = simulate({**fleets.TABLE, "fleet": fleet}).fleets[0]
    apart = simulate({**fleets.TABLE, "fleet": {**fleet, "router": "vllm-dp"}}).fleets[0]
    assert together.requests.finished == apart.requests.finished == together.requests.submitted
    assert together.tpot_s.mean is not None
    assert apart.tpot_s.mean is not None
    assert together.tpot_s.mean > apart.tpot_s.mean


def test_decode_replicas_of_a_mixture_of_experts_step_together() -> None:
    """A prompt of 300 tokens on the second rank delays the tokens of the first rank. Without
    lockstep it does not.
    """
    router = {"kind": "vllm-dp", "lockstep": True}
    apart = {"decode": {"replicas": 2}, "proxy_us": 0.0, "failed_reads": 1.0}
    apart |= {"kv_load_failure_policy": "recompute"}
    ends = []
    for chosen in ({"kind": "vllm-dp"}, router):
        requests = [Request("a", 0, 10, 40), Request("b", 0, 300, 1)]
        table = {**TABLE, "disaggregation": {**apart, "router": chosen}}
        decode = simulate(table, requests).runs[0]
        ends.append({row.id: row.finish_ps for row in decode.requests.itertuples()})
    assert ends[1]["a"] > ends[0]["a"] + 200 * MS


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"tier": [{"kind": "vllm-simple-offloading", "kv_offloading_size": 1}]}, "step together"),
        ({"fleet": {"router": TOGETHER}, "disaggregation": {}}, "single replicas"),
        ({"fleet": {"router": TOGETHER, "failure": [{"at_s": 1, "replica": 0}]}}, "die alone"),
    ],
)
def test_unsupported_dp_lockstep_is_refused(tables: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        served([Request("a", 0, 10, 5)], 2, TOGETHER, **tables)
