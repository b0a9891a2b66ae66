"""Rules of SGLang's scheduler that the recorded schedules do not cover."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.auditor import Auditor
from support.cases import streams
from support.outcomes import STEP_TIME, check_gaps, check_tokens, outcome

import kvsim
from kvsim.engine.schedulers.sglang.budget import Budget, PassLimits
from kvsim.engine.schedulers.sglang.ignore_eos import Ends, Span, span
from kvsim.engine.schedulers.sglang.limits import Limits
from kvsim.engine.schedulers.sglang.options import Sglang
from kvsim.engine.schedulers.sglang.outputs import NewTokenRatio
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.results.gaps import TokenGaps
from kvsim.scenario import Scenario
from kvsim.sequence import Sequence
from kvsim.simulation import Simulation


@pytest.mark.parametrize(
    "wrong",
    [
        {"preemption_mode": "swap"},
        {"victim": "least-computed"},
        {"chunked_prefill_size": 0},
        {"chunked_prefill_size": -2},
        {"chunked_prefill_size": -1, "enable_mixed_chunk": True},
    ],
    ids=str,
)
def test_options_unknown_to_sglang_are_refused(tables: Any, wrong: dict[str, Any]) -> None:
    made = tables(allocator=[{"kind": "radix"}], scheduler={"kind": "sglang", **wrong})
    with pytest.raises(InputError, match=next(reversed(wrong))):
        kvsim.simulate(made, [Request("r", 0, 4, 4)])


@pytest.mark.parametrize("flag", ["page_size", "mem_fraction_static", "tp_size"])
def test_sglang_server_flag_in_a_wrong_table_names_the_right_one(tables: Any, flag: str) -> None:
    made = tables(allocator=[{"kind": "radix"}], scheduler={"kind": "sglang", flag: 1})
    with pytest.raises(InputError, match=f"{flag} of SGLang's server is"):
        kvsim.simulate(made, [Request("r", 0, 4, 4)])


def test_a_chunk_smaller_than_a_page_is_refused(tables: Any) -> None:
    """It would be cut to no page at all, in every pass for ever."""
    pages = [{"kind": "radix", "page_size": 8}]
    made = tables(allocator=pages, scheduler={"kind": "sglang", "chunked_prefill_size": 7})
    with pytest.raises(InputError, match=r"chunked_prefill_size.*at least 8"):
        kvsim.simulate(made, [Request("r", 0, 4, 4)])


@pytest.mark.parametrize("most", [1, 3, None])
def test_prefill_step_admits_at_most_the_given_number_of_prompts(
    tables: Any, most: int | None
) -> None:
    """As add_one_req of 0.5.23; sixty random cases with it equalled the engine row for row."""
    scheduler = {"kind": "sglang", "disable_overlap_schedule": True}
    if most is not None:
        scheduler["prefill_max_requests"] = most
    made = tables(allocator=[{"kind": "radix"}], scheduler=scheduler)
    requests = [Request(f"r{i}", 0, 8, 3, 3) for i in range(6)]
    (run,) = kvsim.simulate(made, requests).runs
    starts = run.requests.groupby("first_token_ps").size()
    assert starts.max() == (most or 6)
    assert len(starts) == 6 // (most or 6)


def test_new_token_ratio_decays_over_600_steps_and_resets_when_idle() -> None:
    ratio = NewTokenRatio(1.0)
    ratio.decay(599)
    assert ratio.value > 0.7 * 0.14
    ratio.decay(2)
    assert ratio.value == 0.7 * 0.14
    ratio.retracted(outputs=3, max_new_tokens=9000, num=1)
    assert ratio.value < 0.7 * 0.14
    ratio.decay()  # from below the floor as well
    assert ratio.value == 0.7 * 0.14
    single = NewTokenRatio(0.3)
    for _ in range(77):
        single.decay()
    at_once = NewTokenRatio(0.3)
    at_once.decay(77)
    assert at_once.value == single.value
    ratio.retracted(outputs=100, max_new_tokens=1000, num=10)
    assert ratio.value == 300 / 1001
    ratio.idle()
    assert ratio.value == 0.7


def test_max_new_tokens_is_cut_to_the_pool() -> None:
    limits = Limits(pool=1000, context=65536, page=1)
    wish = Request("wish", 0, 300, 20, max_tokens=100_000)
    assert limits.max_new_tokens(wish) == 698
    assert limits.max_new_tokens(Request("none", 0, 300, 20)) == 698
    assert limits.refusal(Request("longest", 0, 993, 1)) is None
    assert limits.refusal(Request("longer", 0, 994, 1)) is not None
    assert (limits.max_running(None), limits.max_running(64)) == (500, 64)


def test_equal_prompts_in_one_batch_are_both_computed_and_a_later_one_hits(tables: Any) -> None:
    """In SGLang content can be hit when its step has returned; in vLLM when its blocks are
    allocated.
    """
    prompt = ((0, 64),)
    twins = [Request(f"t{i}", 0, 64, 8, 8, prompt_runs=prompt) for i in range(2)]
    late = Request("late", 10**11, 64, 8, 8, prompt_runs=prompt)
    for allocator, scheduler, hits in (
        ("radix", "sglang", [0, 63]),
        ("paged", "continuous", [48, 48]),
    ):
        made = tables(allocator=[{"kind": allocator}], scheduler={"kind": scheduler})
        found = [
            kvsim.simulate(made, requests).runs[0].summary["prefix_cache"]["hit_tokens"]
            for requests in (twins, [*twins, late])
        ]
        assert found == [hits[0], sum(hits)]


@pytest.mark.parametrize("overlap", [True, False])
def test_large_max_tokens_delay_admission_in_a_partly_empty_pool(
    tables: Any, overlap: bool
) -> None:
    """With max_tokens far above the real outputs, the pool stays partly empty while requests wait
    for memory.
    """
    scheduler = {"kind": "sglang", "disable_overlap_schedule": not overlap}
    made = tables(allocator=[{"kind": "radix"}], scheduler=scheduler)
    shares = {}
    for declared in (20, 2000):
        requests = [Request(f"r{i}", i * 10**8, 100, 20, declared) for i in range(200)]
        (run,) = kvsim.simulate(made, requests).runs
        assert run.summary["requests"]["finished"] == 200
        shares[declared] = run.summary["memory"]["time_mean"]
    assert shares[2000]["short"] > shares[20]["short"]
    assert shares[2000]["used"] < shares[20]["used"] / 2


def test_span_with_the_latest_end_is_inserted_before_the_last_span() -> None:
    ends = Ends(Span(5, 10), [Span(9, 20)])
    ends.add(Span(30, 1))
    assert [each.to_come for each in ends._spans] == [5, 30, 9]
    ends.add(Span(7, 1))
    assert [each.to_come for each in ends._spans] == [5, 7, 30, 9]


def test_request_without_ignore_eos_counts_by_the_new_token_ratio() -> None:
    """By add_one_req_ignore_eos of 0.5.23; R06 of the recorded schedules holds it row for row."""
    seq = Sequence(Request("may stop", 0, 10, 100, max_tokens=100), 0)
    assert span(seq, 100, 20, ratio=0.35) == Span(15.0, 30)
    spent = span(seq, 100, 40, ratio=0.35)
    assert spent.to_come < 0
    ends = Ends(Span(8, 4), [spent])
    ends.add(spent)
    assert ends._spans == [Span(8, 4)]
    asks = Sequence(Request("asks for all", 0, 10, 100, max_tokens=100, ignore_eos=True), 0)
    assert span(asks, 100, 40, ratio=0.35) == Span(60, 50)


def test_only_one_prompt_per_pass_is_chunked(tables: Any) -> None:
    """Since the first chunk ends at a whole page, tokens are left over, with which a request with
    ignore_eos could be cut as a second one.
    """
    made = tables(
        allocator=[{"kind": "radix", "page_size": 4, "disable_radix_cache": True}],
        scheduler={"kind": "sglang", "chunked_prefill_size": 17, "max_running_requests": 4},
    )
    requests = [
        Request("stops", 0, 40, 4, max_tokens=9),
        Request("asks for all", 0, 40, 4, max_tokens=4, ignore_eos=True),
    ]
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary["requests"]["finished"] == 2
    assert run.summary["prefix_cache"]["query_tokens"] == 0
    assert run.summary["engine_faults"] == 1
    assert [note["about"] for note in run.summary["notes"]] == ["engine"]


def test_ignore_eos_requests_without_a_radix_cache_are_never_retracted(tables: Any) -> None:
    """All requests have ignore_eos, so that the admission pass knows every end."""
    made = tables(
        allocator=[{"kind": "radix", "disable_radix_cache": True}],
        scheduler={"kind": "sglang", "schedule_conservativeness": 0.1},
    )
    lengths = [(50 + 7 * (i % 9), 20 + 13 * (i % 11)) for i in range(120)]
    for known, preempts in ((True, False), (False, True)):
        requests = [
            Request(f"r{i}", i * 10**8, prompt, output, output, ignore_eos=known)
            for i, (prompt, output) in enumerate(lengths)
        ]
        (run,) = kvsim.simulate(made, requests).runs
        assert run.summary["requests"]["finished"] == len(requests)
        assert (run.summary["preemptions"] > 0) == preempts


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("overlap", [True, False])
def test_every_token_after_the_first_has_a_gap(tables: Any, overlap: bool, page_size: int) -> None:
    """Tokens that a retraction discards and computes again have gaps too. The gaps of a request
    fill the time from its first token to its last.
    """
    made = tables(
        allocator=[{"kind": "radix", "page_size": page_size}],
        memory={"kv_cache_tokens": 1200},
        scheduler={
            "kind": "sglang",
            "schedule_conservativeness": 0.05,
            "disable_overlap_schedule": not overlap,
        },
    )
    lengths = [40 + 9 * (i % 13) for i in range(90)]
    requests = [Request(f"r{i}", i * 10**10, 20, n, n + i % 2) for i, n in enumerate(lengths)]
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary["preemptions"] > 5
    assert run.recorder is not None
    check_gaps(run.recorder)


@given(
    st.integers(0, 400),
    st.lists(st.floats(0, 40), max_size=6),
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60), st.integers(0, 150)), max_size=5),
)
def test_reserved_tokens_are_summed_lazily(
    available: int, held: list[float], charges: list[tuple[int, int, int]]
) -> None:
    summed: list[float] = []

    def held_back() -> float:
        summed.append(sum(held))
        return summed[-1]

    lazy = Budget(lambda: available, PassLimits(1, 999, None, held_back, 40 * len(held), 0))
    eager = sum(held)
    for tokens, most, asked in charges:
        assert lazy.too_much(asked) == (asked >= available - eager)
        lazy.charge(tokens, most)
        eager += tokens + 1 + most
    assert lazy.total == eager
    assert len(summed) == 1


def test_mixed_decode_tokens_reduce_the_prefill_budget() -> None:
    """rem_input_tokens and rem_chunk_tokens of PrefillAdder, less mixed_with_decode_tokens."""
    budget = Budget(lambda: 1000, PassLimits(1, 100, 50, lambda: 7.0, 7, mixed_tokens=8))
    assert (budget.input, budget.chunk, budget.current, budget.total) == (92, 42, 8, 15.0)
    assert budget.first_chunk(0, 60, budget.chunk) == 42


def test_request_with_no_room_for_output_is_rejected() -> None:
    """Pages round the prompt up: one token more of pool, and one token may come."""
    request = Request("r", 0, 40, 4, 4)
    assert Limits(65, 100, 16).max_new_tokens(request) == 0
    assert Limits(65, 100, 16).refusal(request) is not None
    assert Limits(66, 100, 16).refusal(request) is None


def test_request_without_room_does_not_stop_decoding(tables: Any) -> None:
    """A third request arrives that fits nowhere; the two decoding requests continue."""
    lengths = (0, 213, 85, 85), (100_000_000_000, 1, 69, 69), (600_000_000_000, 129, 1, 2)
    requests = [Request(f"r{at}", at, *rest) for at, *rest in lengths]
    made = tables(
        allocator=[{"kind": "doubling", "initial_tokens": 32, "placement": "first-fit"}],
        scheduler={"kind": "sglang", "max_running_requests": 8, "schedule_conservativeness": 0.1},
        memory={"kv_cache_tokens": 1024},
        model={"name": "opt-125m", "max_model_len": 1024},
        step_time=STEP_TIME,
    )
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary["requests"]["finished"] == 3
    gaps = TokenGaps(run.recorder.gaps, run.recorder.late_gaps)
    assert gaps.num == 84 + 68
    # One step of the second prompt and one of the third are what the decoders wait for at most.
    assert gaps.quantiles_ps([1.0])[0] < 25e9
    assert outcome(made, requests, None) == outcome(made, requests, 1)


def test_admission_is_recomputed_when_an_expected_hit_is_evicted(tables: Any) -> None:
    """The paged pool cannot pin a hit before its admission, so the first request of a pass may
    evict hits that the next two expect. Both would then have an unfinished prompt, but only one
    prompt may be in progress.
    """
    made = tables(
        memory={"kv_cache_tokens": 1104},
        allocator=[{"kind": "paged"}],
        scheduler={"kind": "sglang", "schedule_conservativeness": 0.1},
    )
    known = [((1 + i << 40, 17),) for i in range(2)]
    first = [Request(f"first{i}", 0, 17, 1, 1, prompt_runs=known[i]) for i in range(2)]
    again = [Request(f"again{i}", 10**12, 17, 1, 1, prompt_runs=known[i]) for i in range(2)]
    large = [Request(f"large{i}", (1 + i) * 5 * 10**11, 992, 1, 1) for i in range(2)]
    (run,) = kvsim.simulate(made, [*first, *large, *again]).runs
    assert run.summary["requests"]["finished"] == 6
    assert run.summary["prefix_cache"]["hit_tokens"] == 0


def test_token_gaps_are_correct_after_immediate_retraction(tables: Any) -> None:
    """Its prompt ended in the step that the others sat out: they are as many as before."""
    made = tables(
        memory={"kv_cache_tokens": 1400},
        allocator=[{"kind": "concatenation"}],
        scheduler={"kind": "sglang", "schedule_conservativeness": 0.1},
    )
    requests = [Request("waits", 0, 90, 83, 83), Request("retracted", 0, 375, 82, 82)]
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary["preemptions"] > 1
    assert run.recorder is not None
    check_gaps(run.recorder)


def test_retraction_right_after_prefill_adds_the_gap_to_the_waiting_sequence(tables: Any) -> None:
    """The first sequence waits while the second computes its prompt, and goes on without it: the
    gap is the first one's, and the second has lost no token but its newest.
    """
    made = tables(
        allocator=[{"kind": "doubling", "initial_tokens": 32, "placement": "first-fit"}],
        scheduler={"kind": "sglang", "max_running_requests": 8, "schedule_conservativeness": 0.1},
        memory={"kv_cache_tokens": 128},
        model={"name": "opt-125m", "max_model_len": 1024},
        step_time=STEP_TIME,
        max_steps=1,
    )
    requests = [Request("r0", 0, 49, 17, 17), Request("r1", 0, 1, 18, 18)]
    (run,) = check_tokens(Simulation(Scenario.from_table(made), requests))
    assert run.summary["preemptions"]
    assert outcome(made, requests, None) == outcome(made, requests, 1)


def test_retracted_sequence_with_its_last_token_in_flight_finishes_with_it(tables: Any) -> None:
    """The prompt in flight has taken its slots; the request finishes when its token returns."""
    made = tables(
        model={"name": "jamba-v0.1", "max_model_len": 1024},
        memory={"kv_cache_tokens": 2048},
        allocator=[{"kind": "paged", "enable_prefix_caching": False}],
        scheduler={"kind": "sglang", "chunked_prefill_size": 48, "enable_mixed_chunk": True},
    )
    requests = [Request("r0", 0, 344, 200, 200), Request("r1", 0, 270, 157, 157)]
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary["requests"]["finished"] == 2
    assert run.recorder is not None
    check_gaps(run.recorder)


@pytest.mark.parametrize("interval", [2, 7, 40])
@pytest.mark.parametrize("depth", [1, 2])
def test_arrivals_are_polled_every_interval_of_decode_steps(
    tables: Any, interval: int, depth: int
) -> None:
    """Steps of decoding count one each, a step with prompts and an idle scheduler look at once."""
    made = tables(
        allocator=[{"kind": "radix", "disable_radix_cache": True}],
        scheduler={
            "kind": "sglang",
            "scheduler_recv_interval": interval,
            "disable_overlap_schedule": depth == 1,
        },
        memory={"kv_cache_tokens": 100_000},
        step_time=STEP_TIME,
    )
    first_ps = Simulation(Scenario.from_table(made), [Request("r", 0, 4, 1, 1)]).result()
    step_s = first_ps.runs[0].summary["makespan_s"]
    arrival_ps = int(10.5 * step_s * 1e12)
    requests = [Request("long", 0, 4, 200, 200), Request("late", arrival_ps, 4, 3, 3)]
    (run,) = kvsim.simulate(made, requests).runs
    assert run.recorder is not None
    seen_ps = {seq.id: seq.first_scheduled_ps - seq.arrival_ps for seq in run.recorder.finished}
    assert seen_ps["long"] == 0
    assert seen_ps["late"] < (interval + 1) * 2 * step_s * 1e12
    if interval == 40:
        assert seen_ps["late"] > 20 * step_s * 1e12 / 2
    assert outcome(made, requests, None) == outcome(made, requests, 1)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(
    ("model", "chunk", "tokens"), [("jamba-v0.1", 64, 2048), ("granite-4.0-h-tiny", 2048, 16_500)]
)
def test_hybrid_prompt_completes_in_a_pool_slightly_larger_than_itself(
    model: str, chunk: int, tokens: int, cached: bool
) -> None:
    """A chunk whose states and those of the chunk in flight do not fit waits for its return."""
    for seed in range(8):
        lengths = ({"min_tokens": 5, "max_tokens": each} for each in (tokens - 300, 300))
        prompt, output = ({"kind": "uniform", **each} for each in lengths)
        found = kvsim.simulate({
            "seed": seed,
            "model": {"name": model, "max_model_len": tokens},
            "device": {"name": "h100"},
            "memory": {"kv_cache_tokens": tokens},
            "allocator": {"kind": "paged", "enable_prefix_caching": cached},
            "scheduler": {"kind": "sglang", "chunked_prefill_size": chunk},
            "workload": {
                "kind": "synthetic", "num_requests": 12, "prompt": prompt, "output": output,
                "arrivals": {"kind": "poisson", "rate_per_s": 20.0}, "max_tokens": "exact",
            },
        })  # fmt: skip
        requests = found.runs[0].summary.requests
        assert requests.finished + requests.rejected == 12
        assert requests.finished > 0


def test_unchunked_prompts_have_unlimited_tokens_in_flight() -> None:
    """chunked_prefill_size = -1: a step computes all of a prompt, however long."""
    whole = Sglang.parse({"chunked_prefill_size": -1}, "scheduler")
    assert whole.max_in_flight_tokens(whole.depth) is None
    chunks = Sglang.parse({"chunked_prefill_size": 64}, "scheduler")
    assert chunks.max_in_flight_tokens(chunks.depth) == chunks.depth * 64


def test_unchunked_prompt_is_computed_in_one_step(tables: Any) -> None:
    scheduler = {"kind": "sglang", "chunked_prefill_size": -1, "disable_overlap_schedule": True}
    table = tables(
        allocator=[{"kind": "radix", "page_size": 16}],
        scheduler=scheduler,
        memory={"kv_cache_tokens": 4096},
    )
    run = kvsim.simulate(table, [Request("long", 0, 700, 2)]).runs[0]
    assert run.summary["steps"] == 2  # the prompt, and the second token


@pytest.mark.parametrize("later", [[], [Request("later", 10**9, 40, 4)]])
def test_prompt_waiting_for_windows_that_never_free_is_an_error(
    tables: Any, later: list[Request]
) -> None:
    """SGLang waits for ever until window slots are free (schedule_policy.py, `add_chunked_req`)."""
    made = tables(
        allocator=[{"kind": "radix", "page_size": 64, "disable_radix_cache": True}],
        scheduler={"kind": "sglang", "chunked_prefill_size": 2048},
        memory={"kv_cache_tokens": 563},
        model={"name": "gpt-oss-20b", "max_model_len": 512},
    )
    with pytest.raises(
        InputError, match=r"ratio: .*for ever.*320 of 321.* of request r .*64 of 384 slots"
    ):
        kvsim.simulate(made, [Request("r", 0, 321, 55), *later])
    made["memory"] = {"kv_cache_tokens": 700}
    (run,) = kvsim.simulate(made, [Request("r", 0, 321, 55), *later]).runs
    assert run.summary["requests"]["finished"] == 1 + len(later)


@pytest.mark.parametrize("stages", [2, 3])
@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams())
def test_micro_batches_over_stages_lose_no_token_and_the_ledger_sums(
    tables: Any, stages: int, requests: list[Request]
) -> None:
    """Each request gets all its tokens, the recorded gaps fill the time from its first to its last
    token, and the ledger sums to the capacity.
    """
    made = tables(
        model={"name": "opt-125m", "max_model_len": 512, "pipeline_parallel_size": stages},
        memory={"kv_cache_tokens": 700},
        allocator=[{"kind": "radix"}],
        scheduler={
            "kind": "sglang",
            "chunked_prefill_size": 48,
            "max_running_requests": 9,
            "schedule_conservativeness": 0.1,
        },
        step_time={"kind": "roofline"},
    )
    assert outcome(made, requests, None) == outcome(made, requests, 1)
    simulation = Simulation(Scenario.from_table(made), requests)
    auditor = Auditor()
    run = simulation.run(simulation.scenario.allocator[0], "run", observer=auditor)
    assert run.recorder is not None
    check_gaps(run.recorder)
    assert auditor.events
