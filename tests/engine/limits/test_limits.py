"""Requests with images, adapters or without output: runs of k steps, theory, and clear refusals.

Row for row they are held against vLLM's scheduler in tests/evidence/schedule.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.outcomes import outcome

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS
from kvsim.report.words import paragraphs
from kvsim.request import PromptItem, Request

STEP = {"kind": "linear", "base_us": 8000, "prefill_token_us": 40, "decode_seq_us": 60}


@st.composite
def special(draw: Any) -> list[Request]:
    """Requests of which some have images, some adapters, and some no output."""
    requests: list[Request] = []
    arrival_ms = 0
    for index in range(draw(st.integers(3, 14))):
        arrival_ms += draw(st.sampled_from([0, 0, 5, 60, 400]))
        runs: list[tuple[int, int]] = [(0, draw(st.integers(1, 40)))]
        items: list[PromptItem] = []
        end = runs[0][1]
        for _ in range(draw(st.integers(0, 3))):
            content = draw(st.integers(1, 4))
            tokens = 10 * content
            items.append(PromptItem(end, tokens, content << 20))
            runs.append((content << 20, tokens))
            text = draw(st.sampled_from([1, 7, 30]))
            runs.append(((index + 9) << 30 | end, text))
            end += tokens + text
        requests.append(
            Request(
                f"r{index}",
                arrival_ms * PS_PER_MS,
                end,
                draw(st.sampled_from([0, 1, 4, 40, 120])),
                prompt_runs=tuple(runs),
                output_start=(index + 99) << 30,
                items=tuple(items),
                adapter=draw(st.sampled_from([None, 0, 1, 2])),
            )
        )
    return requests


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    requests=special(),
    asynchronous=st.booleans(),
    whole=st.booleans(),
    tokens=st.sampled_from([512, 768, 2048]),
    cache=st.sampled_from([40, 70, 200]),
    policy=st.sampled_from(["fcfs", "priority"]),
    drafts=st.sampled_from([None, 1, 3]),
)
def test_k_steps_equal_single_steps_with_images_and_adapters(
    tables: Any,
    requests: list[Request],
    asynchronous: bool,
    whole: bool,
    tokens: int,
    cache: int,
    policy: str,
    drafts: int | None,
) -> None:
    drafter = {"method": "eagle", "num_speculative_tokens": drafts, "acceptance_rate": 0.6}
    made = tables(
        allocator=[{"kind": "paged", "block_size": 16}],
        **({} if drafts is None else {"speculative_config": drafter}),
        scheduler={
            "kind": "continuous",
            "max_num_seqs": 4,
            "max_num_batched_tokens": 64,
            "max_loras": 2,
            "max_num_encoder_input_tokens": 50,
            "encoder_cache_size": cache,
            "disable_chunked_mm_input": whole,
            "async_scheduling": asynchronous,
            "policy": policy,
        },
        memory={"kv_cache_tokens": tokens},
        step_time=STEP,
    )
    single = outcome(made, requests, 1)
    assert outcome(made, requests, None) == single
    assert outcome(made, requests, 3) == single


def test_queue_head_with_evicted_prefix_rechecks_its_encoder_items_each_step(tables: Any) -> None:
    """The preempted head waits for blocks. Decoding sequences evict the cached beginning of its
    prompt, so that its tries ask the encoder cache for earlier images from some step on.
    """

    def request(name: str, output_tokens: int, *runs: tuple[int, int]) -> Request:
        items, placed, end = [], [], 0
        for content, tokens in runs:
            if content:
                items.append(PromptItem(end, tokens, content << 20))
            start = content << 20 if content else (1 + int(name)) << 30 | end
            placed.append((start, tokens))
            end += tokens
        last = (int(name) + 99) << 30
        return Request(
            name, 0, end, output_tokens, None, 0, 1, tuple(placed), last, items=tuple(items)
        )

    first = request("0", 120, (0, 1), (1, 10), (0, 1), (1, 10), (0, 1))
    images = (0, 5), (4, 40), (0, 30), (4, 40), (0, 30), (3, 30), (0, 1)
    second = request("1", 120, *images)
    preempted = request("2", 120, (0, 17), (4, 40), (0, 30), (2, 20), (0, 7))
    last = request("3", 0, (0, 1), (3, 30), (0, 1))
    made = tables(
        allocator=[{"kind": "paged", "block_size": 16}],
        scheduler={
            "kind": "continuous",
            "max_num_seqs": 4,
            "max_num_batched_tokens": 64,
            "max_loras": 2,
            "max_num_encoder_input_tokens": 50,
            "encoder_cache_size": 70,
            "async_scheduling": False,
        },
        memory={"kv_cache_tokens": 512},
        step_time=STEP,
    )
    requests = [first, second, preempted, last]
    single = outcome(made, requests, 1)
    assert single[0]["preemptions"] == 1
    assert outcome(made, requests, None) == single


def test_free_bytes_become_short_in_the_same_step_while_the_queue_head_is_skipped(
    tables: Any,
) -> None:
    """The head waits for an adapter's slot while the decoding sequences use up the blocks that it
    would need: the free bytes become short in the step in which they do.
    """
    made = tables(
        allocator=[{"kind": "paged", "block_size": 16}],
        scheduler={
            "kind": "continuous",
            "max_num_batched_tokens": 64,
            "max_loras": 2,
            "max_num_encoder_input_tokens": 50,
            "encoder_cache_size": 40,
        },
        memory={"kv_cache_tokens": 512},
        step_time=STEP,
    )
    requests = [
        Request("a", 0, 100, 150, adapter=0),
        Request("b", 0, 100, 150, adapter=1),
        Request("c", 50 * PS_PER_MS, 180, 4, adapter=2),
    ]
    single = outcome(made, requests, 1)
    assert outcome(made, requests, None) == single
    assert outcome(made, requests, 3) == single
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary["memory"]["time_mean"]["short"] > 0


def test_request_with_zero_output_tokens_takes_its_prefill_time(tables: Any) -> None:
    made = tables(allocator=[{"kind": "paged"}], step_time=STEP)
    requests = [Request("a", 0, 100, 0), Request("b", 10**12, 100, 1)]
    (run,) = kvsim.simulate(made, requests).runs
    alone, one = run.requests.itertuples()
    assert alone.finish_ps - alone.arrival_ps == (8000 + 40 * 100) * 10**6
    assert one.finish_ps - one.arrival_ps == alone.finish_ps - alone.arrival_ps
    assert [alone.output_tokens, one.output_tokens] == [0, 1]
    summary = run.summary
    assert summary["output_tokens_per_s"] == pytest.approx(1 / summary["makespan_s"])
    assert summary["ttft_s"]["mean"] == pytest.approx(0.012)  # of b alone
    assert summary["tpot_s"]["mean"] is None
    said = " ".join(paragraphs(kvsim.simulate(made, requests[:1])))
    assert "half had their results within 12.0 ms" in said


def test_equal_images_are_encoded_once_and_hit_the_prefix_cache(tables: Any) -> None:
    image = PromptItem(0, 64, 1 << 20)
    requests = [
        Request(
            f"r{i}", i * 10**12, 96, 1, prompt_runs=((1 << 20, 64), (i << 30, 32)), items=(image,)
        )
        for i in range(3)
    ]
    other = PromptItem(0, 64, 2 << 20)
    runs = ((2 << 20, 64), (7 << 30, 32))
    requests.append(Request("r3", 3 * 10**12, 96, 1, prompt_runs=runs, items=(other,)))
    made = tables(allocator=[{"kind": "paged"}], scheduler={"kind": "continuous"}, step_time=STEP)
    (run,) = kvsim.simulate(made, requests).runs
    assert run.requests.cached_tokens.tolist() == [0, 64, 64, 0]
    assert run.summary["encoder"] == {
        "encoded_items": 2,
        "encoded_tokens": 128,
        "found_items": 0,  # its placeholders hit, so nobody asks for its embeddings
    }


def test_adapters_share_no_blocks_and_wait_for_a_slot(tables: Any) -> None:
    table = {
        "kind": "synthetic",
        "num_requests": 40,
        "arrivals": {"kind": "at-once"},
        "prompt": {"kind": "fixed", "tokens": 10},
        "output": {"kind": "fixed", "tokens": 20},
        "prefixes": [{"tokens": {"kind": "fixed", "tokens": 64}}],
        "adapters": {"count": 4},
    }
    found = {}
    for slots in 1, 4:
        made = tables(
            allocator=[{"kind": "paged"}],
            scheduler={"kind": "continuous", "max_loras": slots, "max_num_seqs": 64},
            workload=table,
            step_time=STEP,
        )
        (run,) = kvsim.simulate(made).runs
        found[slots] = run.summary
        first_of_each = 40 - 4
        assert run.summary["prefix_cache"]["hit_tokens"] == 64 * first_of_each
    assert found[4]["adapters"] == {"activated": 4, "read": 4, "delayed": 0, "delay_s": None}
    assert found[1]["adapters"]["activated"] == 4
    assert found[1]["adapters"]["delayed"] > 0
    assert found[1]["makespan_s"] > found[4]["makespan_s"]


@pytest.mark.parametrize(
    ("scheduler", "request_", "named"),
    [
        ({"kind": "sglang"}, Request("a", 0, 9, 1, adapter=0), "an adapter are not simulated"),
        ({"kind": "continuous"}, Request("a", 0, 9, 1, adapter=0), "scheduler.max_loras"),
        (
            {"kind": "continuous", "semantics": "vllm-0.11"},
            Request("a", 0, 9, 1, items=(PromptItem(0, 4, 1),)),
            "items are not simulated",
        ),
    ],
)
def test_unsupported_request_kind_is_refused_before_the_run(
    tables: Any, scheduler: Any, request_: Request, named: str
) -> None:
    allocator = "radix" if scheduler["kind"] == "sglang" else "paged"
    made = tables(allocator=[{"kind": allocator}], scheduler=scheduler)
    with pytest.raises(InputError, match=named):
        kvsim.simulate(made, [request_])


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"max_loras": 16}, "scheduler.max_loras: .* got 16; limit memory.max_loras = 4"),
        ({"max_loras": 2, "max_cpu_loras": 9}, "scheduler.max_loras: .* got 2"),
        ({"max_loras": 0}, "scheduler.max_loras: .* got 0"),
        ({"max_cpu_loras": 2}, "scheduler.max_cpu_loras: .* got 2; limit memory.max_loras = 4"),
    ],
    ids=str,
)
def test_scheduler_adapter_limits_that_differ_from_memory_are_refused(
    tables: Any, own: dict[str, int], named: str
) -> None:
    made = tables(
        allocator=[{"kind": "paged"}],
        memory={"kv_cache_tokens": 14_000, "max_loras": 4},
        scheduler={"kind": "continuous", **own},
        step_time=STEP,
    )
    with pytest.raises(InputError, match=named):
        kvsim.simulate(made, [Request("a", 0, 9, 1, adapter=0)])


@pytest.mark.parametrize("beside", [{}, {"max_loras": 4}, {"max_cpu_loras": 4}], ids=str)
def test_memory_max_loras_and_equal_scheduler_keys_are_accepted(
    tables: Any, beside: dict[str, int]
) -> None:
    made = tables(
        allocator=[{"kind": "paged"}],
        memory={"kv_cache_tokens": 14_000, "max_loras": 4},
        scheduler={"kind": "continuous", **beside},
        step_time=STEP,
    )
    requests = [Request(str(n), n, 9, 1, adapter=n) for n in range(6)]
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary["adapters"]["activated"] == 6


def test_pool_sized_without_adapters_is_noted_for_lora_requests(tables: Any) -> None:
    made = tables(allocator=[{"kind": "paged"}], scheduler={"kind": "continuous", "max_loras": 3})
    made |= {"memory": {}, "step_time": STEP}
    requests = [Request("a", 0, 9, 1, adapter=0)]
    (run,) = kvsim.simulate(made, requests).runs
    assert any("without room for 3 LoRA adapters" in note.text for note in run.summary.notes or ())
    assert run.summary["adapters"]["activated"] == 1


def test_encoder_and_adapter_copy_time_is_added_to_the_step(
    tables: Any,
) -> None:
    times = []
    for own in {}, {"encoder_us_per_token": 20, "lora_load_ms": 7}:
        scheduler = {"kind": "continuous", "max_loras": 1, **own}
        made = tables(allocator=[{"kind": "paged"}], scheduler=scheduler, step_time=STEP)
        image = (PromptItem(0, 50, 1 << 20),)
        requests = [Request(n, at, 60, 1, items=image, adapter=0) for n, at in [("a", 0), ("b", 9)]]
        (run,) = kvsim.simulate(made, requests).runs
        times.append(run.summary["makespan_s"])
    assert times[1] - times[0] == pytest.approx(50 * 20e-6 + 7e-3)  # once, for both


def test_a_prompt_with_too_many_items_is_refused(tables: Any) -> None:
    scheduler = {"kind": "continuous", "limit_mm_per_prompt": 1}
    items = (PromptItem(0, 5, 1), PromptItem(5, 5, 2))
    made = tables(allocator=[{"kind": "paged"}], scheduler=scheduler)
    (run,) = kvsim.simulate(made, [Request("a", 0, 20, 1, items=items)]).runs
    assert "limit_mm_per_prompt" in run.requests.reason[0]


def test_item_above_max_tokens_per_mm_item_is_refused_by_name(tables: Any) -> None:
    scheduler = {"kind": "continuous", "max_num_batched_tokens": 64}
    request = Request("a", 0, 200, 1, items=(PromptItem(0, 100, 1),))
    made = tables(allocator=[{"kind": "paged"}], scheduler=scheduler)
    (run,) = kvsim.simulate(made, [request]).runs
    assert "max_tokens_per_mm_item" in run.requests.reason[0]
    made["scheduler"]["max_tokens_per_mm_item"] = 100
    (run,) = kvsim.simulate(made, [request]).runs
    assert run.summary["requests"]["finished"] == 1
