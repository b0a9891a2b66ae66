"""Requests that would never finish are refused or named, whatever they wait for."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.request import PromptItem, Request

IMAGES = {
    "its first token": [PromptItem(0, 78, 7 << 20)],
    "a later one": [PromptItem(2, 10, 6 << 20), PromptItem(27, 78, 7 << 20)],
}
ENGINES: dict[str, dict[str, Any]] = {
    "alone": {},
    "asynchronous": {"scheduler": {"async_scheduling": True}},
    "stages": {"model": {"pipeline_parallel_size": 2}},
    "tier": {"tier": [{"kind": "vllm-offloading", "kv_offloading_size": 0.1}]},
    "fleet": {"fleet": {"replicas": 2}},
}


@pytest.mark.parametrize("items", IMAGES.values(), ids=list(IMAGES))
@pytest.mark.parametrize("parts", ENGINES.values(), ids=list(ENGINES))
def test_image_longer_than_any_chunk_is_an_error(
    tables: Any, items: list[PromptItem], parts: dict[str, Any]
) -> None:
    made = tables(
        allocator=[{"kind": "paged"}],
        step_time={"kind": "roofline"},
        model={"name": "opt-125m", **parts.get("model", {})},
        scheduler={
            "kind": "continuous",
            "max_num_batched_tokens": 16,
            "max_num_seqs": 4,
            "max_tokens_per_mm_item": 341,
            "disable_chunked_mm_input": True,
            **parts.get("scheduler", {}),
        },
        **{key: table for key, table in parts.items() if key not in ("model", "scheduler")},
    )
    text = Request("text", 0, 20, 3)
    image = Request("image", 5, 296, 2, items=tuple(items), prompt_runs=runs(items, 296))
    with pytest.raises(InputError, match=r"no step has room for the next image.*image"):
        kvsim.simulate(made, [text, image])


def runs(items: list[PromptItem], tokens: int) -> tuple[tuple[int, int], ...]:
    found, at = [], 0
    for item in items:
        found += [(1 << 30 | at, item.start_tokens - at), (item.content, item.tokens)]
        at = item.end_tokens
    return tuple(run for run in [*found, (1 << 30 | at, tokens - at)] if run[1])


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    block=st.sampled_from([1, 8, 16]),
    blocks=st.integers(3, 60),
    asks=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=3),
    declared=st.booleans(),
    kind=st.sampled_from(
        [
            {"kind": "paged", "enable_prefix_caching": False},
            {"kind": "radix", "disable_radix_cache": True},
        ]
    ),
)
def test_ignore_eos_request_always_finishes_or_is_refused(
    tables: Any,
    block: int,
    blocks: int,
    asks: list[tuple[int, int]],
    declared: bool,
    kind: dict[str, Any],
) -> None:
    size = "page_size" if kind["kind"] == "radix" else "block_size"
    made = tables(
        allocator=[{**kind, size: block}],
        scheduler={"kind": "sglang"},
        memory={"kv_cache_tokens": max(16, block * blocks)},
    )
    requests = [
        Request(f"r{at}", 0, prompt, output, output if declared else None, ignore_eos=True)
        for at, (prompt, output) in enumerate(asks)
    ]
    (run,) = kvsim.simulate(made, requests).runs
    counts = run.summary["requests"]
    assert counts["finished"] + counts["rejected"] == len(requests)
    for seq in run.recorder.finished:
        assert seq.output_tokens == requests[int(seq.request.id[1:])].output_tokens


@pytest.mark.parametrize(
    ("requests", "named"),
    [
        ([Request("a", 0, 5, 5, after="x")], "after: .*; got x"),
        ([Request("a", 0, 5, 5, after="b"), Request("b", 0, 5, 5, after="a")], "after: .*; got"),
        ([Request("a", 0, 5, 5, group="g", after="g")], "request a .*; got g"),
        ([Request("a", 0, 5, 5), Request("a", 9, 5, 5)], "two requests have one id; got a"),
    ],
    ids=["nobody", "each other", "its own group", "one id"],
)
def test_follower_of_a_request_that_never_finishes_is_refused(
    tables: Any, requests: list[Request], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        kvsim.simulate(tables(allocator=[{"kind": "paged"}]), requests)


def test_finished_group_releases_its_followers(tables: Any) -> None:
    asks = [Request("a", 0, 5, 5, group="g"), Request("b", 0, 5, 5, group="g")]
    made = tables(allocator=[{"kind": "paged"}])
    (run,) = kvsim.simulate(made, [*asks, Request("c", 0, 5, 5, after="g")]).runs
    assert run.summary["requests"]["finished"] == 3
