"""How many sequences fit: the closed forms against the allocators, and a simulated pool filled."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvsim
from kvsim.capacity.fits import fit
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.planning import Serving, plan_cache
from kvsim.capacity.sizing import size
from kvsim.device import named_device
from kvsim.memory import ALLOCATORS
from kvsim.memory.allocator import Demand
from kvsim.memory.options import MemorySpec
from kvsim.model import ModelOptions
from kvsim.model.kv_cache import LayerCache, grouped
from kvsim.plumbing.units import MIB
from kvsim.request import Request
from kvsim.sequence import Sequence


@settings(deadline=None)
@given(
    kind=st.sampled_from(["max-buffer", "doubling", "paged"]),
    tokens=st.integers(1, 64),
    capacity=st.integers(200, 2000),
    block_size=st.sampled_from([1, 4, 16]),
    initial=st.sampled_from([1, 8, 40]),
)
def test_closed_form_sequence_counts_equal_admitted_sequences(
    kind, tokens, capacity, block_size, initial
):
    caches = [LayerCache("full", 10)]
    layout = grouped(caches)
    table = {"kind": kind}
    if kind == "doubling":
        table["initial_tokens"] = initial
    if kind == "paged":
        table |= {"block_size": block_size, "enable_prefix_caching": False}
    options = ALLOCATORS.parse(table, "allocator")
    allocator = options.build(MemorySpec(capacity * 10, layout, 64, 10**9))
    admitted = 0
    demand = Demand(tokens, tokens)
    while allocator.admit(Sequence(Request(str(admitted), 0, tokens, 1), 0), demand):
        admitted += 1
    plan = plan_cache(caches, Serving(64, 64, block_size))
    counts = fit(layout, plan, capacity * 10, tokens, max_model_len=64, initial_tokens=initial)
    assert admitted == getattr(counts, kind.replace("-", "_"))


@given(st.integers(1, 5000), st.sampled_from([1, 16, 64]), st.integers(1, 600))
def test_sliding_window_blocks_cover_any_window_offset(tokens, block_size, window):
    caches = [LayerCache("sliding", 1, window)]
    plan = plan_cache(caches, Serving(5000, 64, block_size, batches_in_flight=1))
    held = plan.held_blocks(tokens)
    first_needed = max(0, tokens - window)
    spanned = (tokens - 1) // block_size - first_needed // block_size + 1
    assert spanned <= held
    assert held * block_size <= grouped(caches).sequence_bytes(tokens) + 2 * block_size


def test_recurrent_states_count_once_per_sequence():
    caches = [*[LayerCache("recurrent", 0, state_bytes=1 << 20)] * 3, LayerCache("full", 1024)]
    layout = grouped(caches)
    plan = plan_cache(caches, Serving(1024, 1024, enable_prefix_caching=False))
    counts = fit(layout, plan, 100 * MIB, 1024, max_model_len=1024, initial_tokens=1024)
    assert counts.max_buffer == counts.doubling == 25
    assert counts.paged == (100 - 1) // 4  # a block is as large as a state


# A model, a drafter, what is drafted, and at how many tokens all groups hold the most at once: one
# behind the end of all their blocks.
FILLED = [
    ("llama-3.2-1b", None, 513),
    ("gpt-oss-20b", None, 513),
    ("gemma-4-31b", None, 1537),
    ("gemma-3-27b", "gemma-3-1b", 1537),
    ("qwen3.5-4b", None, 1057),
    ("qwen3.5-4b", "mtp", 1057),
]


@pytest.mark.parametrize(("model", "drafter", "tokens"), FILLED)
def test_fitting_sequences_fill_a_simulated_pool(model, drafter, tokens):
    """Three sequences that grow to `tokens` tokens at the same time run to their ends in a pool
    that holds three; in one with a block less, somebody gives way.
    """
    memory = {"drafter": drafter, "num_speculative_tokens": 2} if drafter else {}
    options = ModelOptions(name=model, max_model_len=4096)
    sized = size(
        options.build(),
        named_device("h200"),
        MemoryOptions(**memory, kv_cache_bytes=10**10),
        options,
        16,
    )
    plan = sized.plan
    blocks = 1 + 3 * plan.held_blocks(tokens)
    for less in 0, 1:
        capacity = (blocks - less) * plan.bytes_per_block
        counts = fit(sized.layout, plan, capacity, tokens, max_model_len=4096, initial_tokens=64)
        assert counts.paged == 3 - less
        table = {
            "model": {"name": model, "max_model_len": 4096},
            "device": {"name": "h200"},
            "memory": {"kv_cache_bytes": capacity},
            "allocator": [{"kind": "paged"}],
            "scheduler": {
                "kind": "continuous",
                "async_scheduling": True,
                "max_num_batched_tokens": 64,
            },
        }
        if drafter:
            table["speculative_config"] = {
                "method": "mtp" if drafter == "mtp" else "draft_model",
                "num_speculative_tokens": 2,
                **({} if drafter == "mtp" else {"model": drafter}),
                "acceptance_rate": 0.0,
            }
        requests = [Request(f"r{index}", 0, 16, tokens - 15) for index in range(3)]
        (run,) = kvsim.simulate(table, requests).runs
        assert run.summary["requests"]["finished"] == 3
        assert bool(run.summary["preemptions"]) == bool(less)
