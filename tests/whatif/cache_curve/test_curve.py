"""One-pass curves equal a cache simulated block by block, full runs, and published figures."""

from collections import OrderedDict
from itertools import combinations
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.public_traces import public_trace

import kvsim
from kvsim.request import Request
from kvsim.whatif.cache_curve.belady import belady_hits
from kvsim.whatif.cache_curve.lru import kept_runs, lru_curve
from kvsim.workload import WORKLOADS


@st.composite
def streams(draw: st.DrawFn) -> list[Request]:
    """Random prompts that share prefixes with earlier ones, and continue with other tokens."""
    requests: list[Request] = []
    fresh = 1 << 30
    for index in range(draw(st.integers(1, 25))):
        runs: tuple[tuple[int, int], ...] = ()
        if requests and draw(st.integers(0, 3)):
            earlier = draw(st.sampled_from(requests))
            keep = draw(st.integers(0, earlier.prompt_tokens))
            for start, length in earlier.prompt_runs or ():
                if keep:
                    runs = (*runs, (start, min(length, keep)))
                    keep -= min(length, keep)
        if not runs or draw(st.booleans()):
            length = draw(st.integers(1, 60))
            runs = (*runs, (fresh, length))
            fresh += 1000
        tokens = sum(length for _, length in runs)
        requests.append(Request(f"r{index}", index, tokens, 1, prompt_runs=runs))
    return requests


def chains(request: Request, block_tokens: int, *, partial: bool) -> list[tuple[int, ...]]:
    """The content of each block: all the prompt's tokens up to the block's end."""
    assert request.prompt_runs is not None
    tokens = [at for start, length in request.prompt_runs for at in range(start, start + length)]
    end = len(tokens) if partial else len(tokens) // block_tokens * block_tokens
    ends = range(block_tokens, end + block_tokens, block_tokens)
    return [tuple(tokens[: min(at, end)]) for at in ends]


def hits_block_by_block(
    requests: list[Request], num_blocks: int, block_tokens: int, *, partial: bool
) -> int:
    cache: OrderedDict[tuple[int, ...], None] = OrderedDict()
    hits = 0
    for request in requests:
        blocks = chains(request, block_tokens, partial=partial)
        usable = len(blocks) if partial else (request.prompt_tokens - 1) // block_tokens
        found = 0
        while found < len(blocks) and blocks[found] in cache:
            found += 1
        hits += min(min(found, usable) * block_tokens, request.prompt_tokens)
        for block in reversed(blocks):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > num_blocks:
            cache.popitem(last=False)
    return hits


@settings(max_examples=200, deadline=None)
@given(streams(), st.sampled_from([1, 4, 7]), st.booleans())
def test_lru_curve_equals_block_by_block_caches(
    requests: list[Request], block_tokens: int, partial: bool
) -> None:
    curve = lru_curve(requests, block_tokens, partial=partial)
    for num_blocks in (*range(12), 20, 50, 10_000):
        expected = hits_block_by_block(requests, num_blocks, block_tokens, partial=partial)
        assert curve.hits(num_blocks) == expected


@settings(max_examples=50, deadline=None)
@given(streams(), st.sampled_from([1, 4, 7]), st.randoms(use_true_random=False))
def test_lru_curve_is_independent_of_token_run_cuts(
    requests: list[Request], block_tokens: int, random: Random
) -> None:
    def cut(request: Request) -> Request:
        runs: list[tuple[int, int]] = []
        for start, length in request.prompt_runs or ():
            at = random.randint(0, length)
            runs += [(start, at), (start + at, length - at)]
        return request._replace(prompt_runs=tuple(runs))

    curve = lru_curve(requests, block_tokens)
    assert (lru_curve(map(cut, requests), block_tokens).hit_blocks == curve.hit_blocks).all()


@settings(max_examples=100, deadline=None)
@given(streams(), st.sampled_from([1, 4, 7]))
def test_belady_is_at_least_lru_and_equals_it_in_an_infinite_cache(
    requests: list[Request], block_tokens: int
) -> None:
    curve = lru_curve(requests, block_tokens)
    for num_blocks in (0, 1, 2, 5, 10, 30):
        assert belady_hits(requests, num_blocks, block_tokens) >= curve.hits(num_blocks)
    assert belady_hits(requests, 10_000, block_tokens) == curve.hits(10_000)


@settings(max_examples=150, deadline=None)
@given(
    words=st.lists(st.text("ab", min_size=1, max_size=3), min_size=2, max_size=7),
    num_blocks=st.integers(1, 4),
)
def test_belady_equals_the_best_of_all_eviction_orders(words: list[str], num_blocks: int) -> None:
    """Compared with every choice of blocks to keep after each prompt. A letter is a block of four
    tokens; each prompt ends in one private token.
    """
    requests = [
        Request(
            f"r{at}",
            at,
            4 * len(word) + 1,
            1,
            prompt_runs=(*((4 * ord(letter), 4) for letter in word), (10_000 + at, 1)),
        )
        for at, word in enumerate(words)
    ]
    best: dict[frozenset[str], int] = {frozenset(): 0}
    for word in words:
        path = [word[: end + 1] for end in range(len(word))]
        after: dict[frozenset[str], int] = {}
        for held, hits in best.items():
            found = 0
            while found < len(path) and path[found] in held:
                found += 1
            for kept in subsets(held | set(path), num_blocks):
                after[kept] = max(after.get(kept, 0), hits + found)
        best = after
    assert belady_hits(requests, num_blocks, 4) == 4 * max(best.values())


def subsets(pool: Any, size: int) -> list[frozenset[Any]]:
    return [frozenset(chosen) for chosen in combinations(sorted(pool), min(size, len(pool)))]


@settings(max_examples=25, deadline=None)
@given(requests=streams(), num_blocks=st.integers(8, 40), output=st.sampled_from([1, 2, 14]))
def test_sequential_run_hits_as_the_lru_curve(
    requests: list[Request], num_blocks: int, output: int
) -> None:
    """Under vLLM's rules with one running request, two blocks of the pool cache nothing: the null
    block, and the block with the last prompt's end.
    """
    block = 8
    # A prompt that ends with a full block computes it again, beside the one in the cache.
    requests = [
        r._replace(output_tokens=output, output_start=(1 << 50) + at * 100)
        for at, r in enumerate(requests)
        if r.prompt_tokens % block and (r.prompt_tokens + output - 1) % block
    ]
    for at, request in enumerate(requests[::3]):  # some prompts go on from an earlier answer
        runs = kept_runs(request, outputs=True) or ()
        tokens = request.prompt_tokens + output + 2
        if tokens % block and (tokens + output - 1) % block:
            more = request._replace(
                id=f"more{at}",
                prompt_tokens=tokens,
                prompt_runs=(*runs, ((1 << 52) + at * 10, 3)),
                output_start=(1 << 51) + at * 100,
            )
            requests.append(more)
    made = {
        "model": {"name": "opt-125m", "max_model_len": 2048},
        "device": {"name": "a100-40gb"},
        "memory": {"num_gpu_blocks": num_blocks + 2},
        "allocator": [{"kind": "paged", "block_size": block}],
        "scheduler": {"kind": "continuous", "max_num_seqs": 1, "max_num_batched_tokens": 4096},
        "step_time": {"kind": "linear", "base_us": 1000},
    }
    fitting = [r for r in requests if r.prompt_tokens + output < num_blocks * block]
    if not fitting:
        return
    (run,) = kvsim.simulate(made, fitting).runs
    assert run.summary["requests"]["rejected"] == 0
    expected = lru_curve(fitting, block, outputs=True).hits(num_blocks)
    assert run.summary["prefix_cache"]["hit_tokens"] == expected


def test_mooncake_lru_hits_equal_the_published_ones() -> None:
    """Hit rates of an LRU cache of 512-token blocks on this trace, published by an independent
    tool. They are equal to the last digit if each hit block counts in full, even the last one of a
    prompt. Counted by tokens they are lower by at most 0.05 points.
    """
    path = public_trace("conversation_trace.jsonl")
    options = WORKLOADS.get("trace").parse({"path": path.name}, "workload")
    stream = options.generate(0, base=path.parent, max_model_len=None)
    curve = lru_curve(stream.requests, 512, partial=True)
    published = [4.3, 5.6, 18.5, 34.2, 37.4]
    blocks = [(1 << power) // 512 for power in (18, 20, 22, 24)]
    found = [*(curve.hit_blocks[size] for size in blocks), curve.hit_blocks[-1]]
    assert [round(100 * int(hits) * 512 / curve.query_tokens, 1) for hits in found] == published
    tokens = [*(curve.ratio(512 * size) for size in blocks), curve.unlimited]
    whole = [int(hits) * 512 / curve.query_tokens for hits in found]
    assert all(0 <= a - b < 0.0005 for a, b in zip(whole, tokens, strict=True))
