"""Prefill and decode replicas of a scenario: all requests are served, pools are empty at the end,
and runs of many steps at once equal single steps.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import streams

import kvsim
from kvsim.engine.connectors.connector import Report
from kvsim.engine.connectors.nixl.producer import NixlProducer
from kvsim.engine.schedulers.sglang_pd.decode import HOST_FULL, OUT_OF_MEMORY
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS
from kvsim.request import Request

ENGINES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "vllm": ({"kind": "paged", "block_size": 16}, {"kind": "continuous", "max_num_seqs": 8}),
    "vllm, asynchronous": (
        {"kind": "paged", "block_size": 8},
        {"kind": "continuous", "async_scheduling": True, "max_num_batched_tokens": 256},
    ),
    "sglang": (
        {"kind": "radix", "page_size": 1},
        {"kind": "sglang", "disable_overlap_schedule": True, "chunked_prefill_size": 96},
    ),
    "sglang, overlap": (
        {"kind": "radix", "page_size": 16},
        {"kind": "sglang", "max_running_requests": 6, "chunked_prefill_size": 128},
    ),
}
SMALL = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def deployed(tables: Any, engine: str, apart: dict[str, Any], tokens: int, **more: Any) -> Any:
    allocator, scheduler = ENGINES[engine]
    return tables(
        allocator=[allocator],
        scheduler=scheduler,
        memory={"kv_cache_tokens": tokens},
        disaggregation={"link_gb_per_s": 2.0, **apart},
        **more,
    )


@pytest.mark.parametrize("engine", ENGINES)
@SMALL
@given(data=st.data())
def test_k_steps_equal_single_steps_with_prefill_and_decode_replicas(
    tables: Any, engine: str, data: Any
) -> None:
    requests = data.draw(streams())
    tokens = data.draw(st.sampled_from([1024, 1536, 4096]))
    apart: dict[str, Any] = {"handshake_us": 300.0}
    more: dict[str, Any] = {}
    if engine.startswith("sglang"):
        apart["num_reserved_decode_tokens"] = data.draw(st.sampled_from([0, 8, 64]))
        apart["decode_radix_cache"] = data.draw(st.booleans())
        if not apart["decode_radix_cache"]:
            apart["retraction_host_ratio"] = data.draw(st.sampled_from([0.2, 1.0]))
        apart["notice_us"] = apart["notify_us"] = 50.0
        hosts = data.draw(st.sampled_from([None, "write_through", "write_back"]))
        if hosts is not None:
            pages = {"hicache_write_policy": hosts, "hicache_ratio": 0.5}
            apart["prefill"] = {"allocator": {"enable_hierarchical_cache": True, **pages}}
            if apart["decode_radix_cache"]:
                apart["decode"] = apart["prefill"]
        for key in ("bootstrap_timeout", "waiting_timeout"):
            apart[key] = data.draw(st.sampled_from([0.05, 0.5, 300.0]))
    else:
        apart["proxy_us"] = 200.0
        apart["kv_load_failure_policy"] = data.draw(st.sampled_from(["fail", "recompute"]))
        apart["kv_lease_duration"] = data.draw(st.sampled_from([0.05, 30.0]))
        if method := data.draw(st.sampled_from(["", "ngram", "eagle"])):
            drafts = {"num_speculative_tokens": data.draw(st.sampled_from([1, 3]))}
            more["speculative_config"] = {"method": method, "acceptance_rate": 0.6, **drafts}
    for key in ("failed_reads", "abandoned"):
        apart[key] = data.draw(st.sampled_from([0.0, 0.3]))
    made = deployed(tables, engine, apart, tokens, **more)
    fast, single = (
        kvsim.simulate({**made, "max_steps": steps} if steps else made, requests)
        for steps in (None, 1)
    )
    for ours, theirs in zip(fast.runs, single.runs, strict=True):
        assert ours.summary.simulated() == theirs.summary.simulated()
    decode, prefill = fast.runs
    assert decode.summary.requests.submitted == len(requests)
    ends = ("failed_reads", "abandoned", "retraction_host_ratio")
    waits = {apart.get(key, 300.0) for key in ("bootstrap_timeout", "waiting_timeout")}
    if not any(map(apart.get, ends)) and waits == {300.0} and "decode" not in apart:
        assert decode.summary.requests.finished == prefill.summary.requests.finished
    for run in fast.runs:
        parts = run.summary.memory.parts or {}
        means = run.summary.memory.time_mean
        assert parts.get("kept_for_readers", 0.0) <= means.used + 1e-12
        assert parts.get("arriving", 0.0) <= means.reserved + 1e-12


@pytest.mark.parametrize("method", ["", "mtp"])
def test_k_steps_equal_single_steps_where_decode_replicas_read_states(method: str) -> None:
    """Turns of conversations, in a pool so small that states are evicted before keys and values."""
    made: dict[str, Any] = {
        "model": {"name": "qwen3-next-80b-a3b", "tensor_parallel_size": 2, "max_model_len": 4096},
        "device": {"name": "h200-141gb"},
        "memory": {"num_gpu_blocks": 44},
        "allocator": [{"kind": "paged", "enable_prefix_caching": True}],
        "scheduler": {"kind": "continuous", "async_scheduling": True, "max_num_seqs": 8},
        "step_time": {"kind": "roofline"},
        "disaggregation": {},
    }
    if method:
        drafts = {"num_speculative_tokens": 2, "acceptance_rate": 0.6}
        made["speculative_config"] = {"method": method, **drafts}
    turns = [(user, turn) for turn in range(3) for user in range(6)]
    requests = [
        Request(
            f"{user}-{turn}",
            (turn * 6 + user) * 40 * PS_PER_MS,
            700 * turn + 500 + 97 * user,
            40,
            prompt_runs=((user << 20, 700 * turn + 500 + 97 * user),),
        )
        for user, turn in turns
    ]
    fast, single = (kvsim.simulate(each, requests) for each in (made, {**made, "max_steps": 1}))
    for ours, theirs in zip(fast.runs, single.runs, strict=True):
        assert ours.summary.simulated() == theirs.summary.simulated()
    decode, prefill = fast.runs
    assert decode.summary.requests.finished == prefill.summary.requests.finished == len(requests)
    assert decode.summary.prefix_cache.hit_tokens > 0


def test_follow_up_arriving_at_a_poll_waits_for_the_next_poll(tables: Any) -> None:
    """The prefill replica polls every millisecond while it holds blocks of an abandoned request. A
    follow-up arrives at the same time as a poll, but after it.
    """
    requests = [
        Request("r0", 0, 40, 92),
        Request("r1", 0, 307, 197, after="r0"),
        Request("r2", 0, 511, 73, after="r1"),
    ]
    apart = {"handshake_us": 300.0, "proxy_us": 200.0, "abandoned": 0.3}
    made = deployed(tables, "vllm, asynchronous", apart, 1024)
    fast, single = (kvsim.simulate(table, requests) for table in (made, {**made, "max_steps": 1}))
    decode, _ = fast.runs
    assert list(decode.requests["reason"].notna()) == [False, True, False]
    for ours, theirs in zip(fast.runs, single.runs, strict=True):
        assert ours.summary.simulated() == theirs.summary.simulated()
        assert list(ours.requests["finish_ps"]) == list(theirs.requests["finish_ps"])


def test_request_that_finishes_on_arrival_frees_its_slot(tables: Any) -> None:
    """One request decodes, and five requests of one output token arrive at once and finish. The
    sixth did not fit, and takes one of their slots in the next pass.
    """
    lengths = [(1, 1), (1, 1), (1, 9), (353, 1), (1, 1), (1, 1), (1, 1), (1, 1)]
    requests = [
        Request(f"r{index}", 0, prompt, output, output, after="r0" if index == 1 else None)
        for index, (prompt, output) in enumerate(lengths)
    ]
    apart = {"handshake_us": 300.0, "notice_us": 50.0, "notify_us": 50.0}
    apart |= {"num_reserved_decode_tokens": 0}
    made = deployed(tables, "sglang, overlap", apart, 1024)
    fast, single = (kvsim.simulate(each, requests) for each in (made, {**made, "max_steps": 1}))
    for ours, theirs in zip(fast.runs, single.runs, strict=True):
        assert ours.summary.simulated() == theirs.summary.simulated()
    first = fast.runs[0].requests.set_index("id").first_token_ps
    assert first["r1"] - first["r3"] == 8_060_000_000  # one step of one decoding sequence


def test_backlog_is_simulated_without_a_poll_each_millisecond(
    tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While prompts wait for a full decode engine, prefill engines look only at what comes."""
    requests = [Request(f"r{i}", 0, 300, 200) for i in range(6)]
    made = deployed(tables, "vllm", {"decode": {"memory": {"kv_cache_tokens": 800}}}, 8192)
    polls, poll = [0], NixlProducer.poll

    def counted(connector: NixlProducer, now_ps: int) -> Report:
        polls[0] += 1
        return poll(connector, now_ps)

    monkeypatch.setattr(NixlProducer, "poll", counted)
    seconds = kvsim.simulate(made, requests).runs[0].summary.makespan_s
    assert polls[0] < 50 * seconds
    polls[0] = 0
    kvsim.simulate({**made, "max_steps": 1}, requests)
    assert polls[0] > 500 * seconds


@pytest.mark.parametrize("engine", ENGINES)
def test_first_token_returns_after_prefill_and_transfer(tables: Any, engine: str) -> None:
    requests = [Request(f"r{i}", i * 500 * PS_PER_MS, 200 + i, 20) for i in range(6)]
    result = kvsim.simulate(deployed(tables, engine, {"link_latency_us": 70e3}, 4096), requests)
    decode, prefill = result.runs
    transfer_ms = (decode.requests.first_token_ps - prefill.requests.first_token_ps) / PS_PER_MS
    assert (transfer_ms >= 70).all()
    transfers = decode.summary.transfers
    assert transfers is not None
    assert transfers.transfers >= 6  # SGLang sends the chunks of a prompt apart
    assert transfers.mean_s == pytest.approx(0.07, rel=0.2)
    assert (np.diff(decode.requests.arrival_ps) == 500 * PS_PER_MS).all()  # not when decode saw it


def test_prompts_held_for_transfer_and_arriving_ones_are_ledger_parts(tables: Any) -> None:
    """Over a slow link prompts lie on both sides, on one used and on the other reserved."""
    requests = [Request(f"r{i}", 0, 320, 40) for i in range(8)]
    for engine in ("vllm", "sglang"):
        made = deployed(tables, engine, {"link_gb_per_s": 0.1}, 4096)
        decode, prefill = kvsim.simulate(made, requests).runs
        assert decode.summary.memory.part("arriving") > 0.05
        assert prefill.summary.memory.part("kept_for_readers") > 0.05


def test_decode_backlog_holds_prefill_blocks_under_vllm_and_queues_under_sglang(
    tables: Any,
) -> None:
    requests = [Request(f"r{i}", 0, 300, 60) for i in range(24)]
    small = {"decode": {"memory": {"kv_cache_tokens": 1100}}}
    kept = {}
    for engine in ("vllm", "sglang"):
        _, prefill = kvsim.simulate(deployed(tables, engine, small, 8192), requests).runs
        kept[engine] = prefill.summary.memory.part("kept_for_readers")
    assert kept["vllm"] > 0.3
    assert kept["sglang"] < 0.05


def test_decode_reserved_tokens_trade_idle_memory_for_retractions(tables: Any) -> None:
    """sglang#27622: with tokens reserved for outputs that turn out short, the decode pool stays
    empty.
    """
    requests = [Request(f"r{i}", 0, 100, 60, max_tokens=60) for i in range(40)]
    runs = {}
    for reserved in (1024, 64, 0):
        apart = {"num_reserved_decode_tokens": reserved}
        runs[reserved] = kvsim.simulate(deployed(tables, "sglang", apart, 2048), requests).runs[0]
    running = {key: run.summary.running_mean or 0.0 for key, run in runs.items()}
    assert running[1024] < 0.5 * running[64]
    assert runs[1024].summary.preemptions == runs[64].summary.preemptions == 0
    assert runs[0].summary.preemptions > 0


def test_retracted_request_without_host_memory_ends_with_an_error(tables: Any) -> None:
    """SGLang reserves host memory for retracted requests: a fifth of the pool, or more if one of
    the longest needs it (0.5.23, mem_cache/kv_cache_builder.py). With a prefix cache there is no
    limit.
    """
    requests = [Request(f"r{i}", 0, 100, 190, max_tokens=190) for i in range(30)]

    def served(max_model_len: int, **apart: Any) -> Any:
        made = deployed(tables, "sglang", {"num_reserved_decode_tokens": 0, **apart}, 2048)
        made["model"] = {**made["model"], "max_model_len": max_model_len}
        return kvsim.simulate(made, requests).runs[0]

    for apart in ({"retraction_host_ratio": 2.0}, {"decode_radix_cache": True}):
        assert served(300, **apart).summary.requests.finished == 30
    small, explicit = served(300), served(300, retraction_host_ratio=0.2)
    assert small.summary.requests.rejected > 0
    assert small.summary.requests == explicit.summary.requests
    assert reasons(small) == {HOST_FULL}
    large = served(2000).summary.requests
    assert large.rejected < small.summary.requests.rejected
    with pytest.raises(InputError, match="retraction_host_ratio: a decode engine with a prefix"):
        served(300, decode_radix_cache=True, retraction_host_ratio=0.2)


def test_the_last_request_of_a_full_decode_engine_of_sglang_ends_with_an_error(
    tables: Any,
) -> None:
    """Prompts in transfer hold memory and cannot be retracted. The only decoding request has no
    slot for its next token (0.5.23, managers/schedule_batch.py, retract_decode).
    """
    lengths = [(100, 180), (150, 20), (150, 20)]
    requests = [Request(f"r{i}", i * PS_PER_MS, *pair, pair[1]) for i, pair in enumerate(lengths)]
    apart = {"num_reserved_decode_tokens": 0, "link_gb_per_s": 0.01}
    made = deployed(tables, "sglang", apart, 420)
    made["model"] = {**made["model"], "max_model_len": 300}
    made["disaggregation"]["prefill"] = {"memory": {"kv_cache_tokens": 4096}}
    for steps in (None, 1):
        run = kvsim.simulate({**made, "max_steps": steps} if steps else made, requests).runs[0]
        assert reasons(run) == {OUT_OF_MEMORY}
        assert run.summary.requests.finished == 2
        assert run.summary.preemptions == 0


def test_waiting_prompt_takes_the_slot_of_a_one_token_request_a_pass_later(tables: Any) -> None:
    """A request that finishes on admission frees its slot for the next one a pass later."""
    _, scheduler = ENGINES["sglang"]
    requests = [Request("long", 0, 64, 40)]
    requests += [Request(f"r{i}", PS_PER_MS, 64, 1 + i % 2 * 9) for i in range(6)]
    made = deployed(tables, "sglang", {}, 8192)
    made["scheduler"] = scheduler | {"max_running_requests": 1}
    assert kvsim.simulate(made, requests).runs[0].summary.requests.finished == 7


def test_replicas_of_one_role_are_reported_as_one_run(tables: Any) -> None:
    requests = [Request(f"r{i}", i * 20 * PS_PER_MS, 100 + i, 30) for i in range(40)]
    two = {"prefill": {"replicas": 2}, "decode": {"replicas": 3}}
    decode, prefill = kvsim.simulate(deployed(tables, "vllm", two, 4096), requests).runs
    assert decode.summary.memory.capacity_tokens == 3 * 4096
    assert prefill.summary.memory.capacity_tokens == 2 * 4096
    assert decode.summary.requests.finished == len(decode.requests) == 40
    rows = decode.memory
    classes = [name for name in rows.columns if name.endswith("_bytes") and "_end_" not in name]
    parts = {"cached_outputs_bytes", "arriving_bytes", "kept_for_readers_bytes"}
    total = rows[[name for name in classes if name not in parts]].sum(axis=1)
    assert (total == decode.summary.memory.capacity_bytes).all()
    assert (rows.end_ps.to_numpy()[:-1] == rows.start_ps.to_numpy()[1:]).all()


def test_abandoned_prompt_holds_prefill_blocks_until_its_lease_expires(tables: Any) -> None:
    requests = [Request(f"r{i}", i * 100 * PS_PER_MS, 300, 20) for i in range(20)]
    kept = {}
    for seconds in (0.2, 5.0):
        apart = {"abandoned": 0.4, "kv_lease_duration": seconds}
        decode, prefill = kvsim.simulate(deployed(tables, "vllm", apart, 4096), requests).runs
        transfers, counts = decode.summary.transfers, decode.summary.requests
        assert transfers is not None
        assert 0 < counts.rejected == transfers.expired == 20 - counts.finished
        kept[seconds] = prefill.summary.memory.part("kept_for_readers")
    assert kept[5.0] > 3 * kept[0.2]


def test_failed_kv_load_fails_the_request_or_recomputes_its_prompt(tables: Any) -> None:
    requests = [Request(f"r{i}", i * 100 * PS_PER_MS, 300, 20) for i in range(20)]
    steps = {}
    for policy in ("fail", "recompute"):
        apart = {"failed_reads": 0.4, "kv_load_failure_policy": policy, "kv_lease_duration": 1.0}
        decode, prefill = kvsim.simulate(deployed(tables, "vllm", apart, 4096), requests).runs
        assert prefill.summary.requests.finished == 20
        transfers = decode.summary.transfers
        assert transfers is not None
        assert transfers.expired > 0  # nobody tells the prefill engine
        steps[policy] = decode.summary.requests.rejected, decode.summary.requests.finished
    assert steps["recompute"] == (0, 20)
    assert steps["fail"][0] > 0
    assert sum(steps["fail"]) == 20


def reasons(run: Any) -> set[str]:
    """Why requests of this run ended with an error."""
    assert run.recorder is not None
    return {reason for *_, reason in run.recorder.rejected}


@pytest.mark.parametrize("cause", ["failed_reads", "abandoned"])
def test_sglang_frees_both_sides_after_a_failed_transfer_or_abort(tables: Any, cause: str) -> None:
    requests = [Request(f"r{i}", i * 100 * PS_PER_MS, 300, 20) for i in range(20)]
    decode, prefill = kvsim.simulate(deployed(tables, "sglang", {cause: 0.4}, 4096), requests).runs
    whole, _ = kvsim.simulate(deployed(tables, "sglang", {}, 4096), requests).runs
    counts = decode.summary.requests
    assert prefill.summary.requests.finished == 20  # all prompts are computed
    assert 0 < counts.rejected == 20 - counts.finished
    assert len(reasons(decode)) == 1
    assert prefill.summary.memory.part("kept_for_readers") < 0.01  # no lease keeps a prompt
    sent = [run.summary.transfers.num_bytes for run in (decode, whole) if run.summary.transfers]
    assert sent[0] < sent[1] if cause == "abandoned" else sent[0] == sent[1]


def test_sglang_rejects_requests_past_bootstrap_and_waiting_timeouts(tables: Any) -> None:
    """A prompt that finds no memory on a decode engine in time ends on the prefill side. The decode
    engine is not informed, and reserves memory for the prompt until waiting_timeout.
    """
    requests = [Request(f"r{i}", 0, 300, 60) for i in range(12)]
    small = {"decode": {"memory": {"kv_cache_tokens": 1100}}}
    held, spans = {}, {}
    for waiting in (0.5, 20.0):
        apart = small | {"bootstrap_timeout": 0.3, "waiting_timeout": waiting}
        decode, prefill = kvsim.simulate(deployed(tables, "sglang", apart, 8192), requests).runs
        assert prefill.summary.requests.rejected > 0
        assert decode.summary.requests.rejected == prefill.summary.requests.rejected
        assert reasons(prefill) == {"no decode engine had room for it within bootstrap_timeout"}
        assert reasons(decode) == {"its prompt did not arrive within waiting_timeout"}
        held[waiting] = decode.summary.memory.part("arriving")
        spans[waiting] = max(rejected[1] for rejected in decode.recorder.rejected) / 10**12
    assert spans[20.0] > 20.0 > spans[0.5]


def test_slow_link_rejects_requests_past_waiting_timeout(tables: Any) -> None:
    """Prompts wait for the link for longer than waiting_timeout; computed ones are freed."""
    requests = [Request(f"r{i}", 0, 320, 40) for i in range(8)]
    apart = {"link_gb_per_s": 0.02, "waiting_timeout": 1.0}
    decode, _ = kvsim.simulate(deployed(tables, "sglang", apart, 4096), requests).runs
    counts = decode.summary.requests
    assert 0 < counts.rejected == 8 - counts.finished < 8
    assert reasons(decode) == {"its prompt did not arrive within waiting_timeout"}


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        ({"notice_us": 5.0}, r"disaggregation\.notice_us: this key is another engine's"),
        ({"decode": {"device": {"name": "x1"}}}, r"disaggregation\.decode: device\.name"),
        ({"decode": {"allocator": {"block_size": 32}}}, "blocks of one size"),
        ({"decode": {"scheduler": {"kind": "sglang"}}}, "vLLM's and SGLang's schedulers"),
        ({"decode": {"replicas": 0}}, r"disaggregation\.decode\.replicas"),
    ],
)
def test_unsupported_disaggregation_is_refused_by_name(
    tables: Any, apart: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        kvsim.simulate(deployed(tables, "vllm", apart, 4096), [Request("a", 0, 10, 10)])


def test_prompt_too_large_for_prefill_or_decode_pool_is_refused(tables: Any) -> None:
    requests = [Request("long", 0, 900, 10), Request("short", 0, 100, 10)]
    small = {"prefill": {"memory": {"kv_cache_tokens": 512}}}
    for engine in ("vllm", "sglang"):
        decode, _ = kvsim.simulate(deployed(tables, engine, small, 4096), requests).runs
        assert decode.summary.requests.finished == 1
        assert decode.summary.requests.rejected == 1


# Each of eight users sends its prompt twice, with the others' prompts in between.
TWICE = [
    Request(f"{turn}-{user}", (turn * 8 + user) * 10**12, 304, 2, prompt_runs=((user << 20, 304),))
    for turn in range(2)
    for user in range(8)
]
HOSTED = {"prefill": {"allocator": {"enable_hierarchical_cache": True, "hicache_ratio": 4.0}}}


@pytest.mark.parametrize("engine", ["sglang", "sglang, overlap"])
def test_prefill_replica_loads_evicted_prompts_from_its_host_memory(
    tables: Any, engine: str
) -> None:
    made = deployed(tables, engine, HOSTED, 1024)
    fast, single = (kvsim.simulate(table, TWICE) for table in (made, {**made, "max_steps": 1}))
    for ours, theirs in zip(fast.runs, single.runs, strict=True):
        assert ours.summary.simulated() == theirs.summary.simulated()
    _, prefill = fast.runs
    page = ENGINES[engine][0]["page_size"]
    assert prefill.summary.prefix_cache.host_hit_tokens == 8 * (303 // page * page)
    assert prefill.summary.offloading is not None


@pytest.mark.parametrize("engine", ["sglang", "sglang, overlap"])
def test_promised_prefix_is_loaded_from_host_memory_of_the_decode_replica(
    tables: Any, engine: str
) -> None:
    """Second turns have the prompts of the first ones, which are evicted from the device but not
    from host memory.
    """
    found = []
    for hosted in ({}, HOSTED["prefill"]):
        more = {"decode": hosted} if hosted else {}
        made = deployed(tables, engine, {**more, "decode_radix_cache": True}, 1024)
        fast, single = (kvsim.simulate(each, TWICE) for each in (made, {**made, "max_steps": 1}))
        for ours, theirs in zip(fast.runs, single.runs, strict=True):
            assert ours.summary.simulated() == theirs.summary.simulated()
        found.append(fast.runs[0].summary)
    page = ENGINES[engine][0]["page_size"]
    assert found[1].prefix_cache.host_hit_tokens == 8 * (304 // page * page)
    assert found[1].requests.finished == found[0].requests.finished == len(TWICE)


@pytest.mark.parametrize(
    ("apart", "match"),
    [
        ({"decode": HOSTED["prefill"]}, "of decode replicas extends.*prefill.allocator"),
        (
            {
                "prefill": {
                    "allocator": {
                        "enable_hierarchical_cache": True,
                        "hicache_storage_backend": "file",
                    }
                }
            },
            "hicache_storage_backend",
        ),
    ],
    ids=["decode", "storage"],
)
def test_hierarchical_cache_on_decode_or_with_storage_is_refused(
    tables: Any, apart: dict[str, Any], match: str
) -> None:
    with pytest.raises(InputError, match=match):
        kvsim.simulate(deployed(tables, "sglang", apart, 1024), [Request("r", 0, 20, 2)])
