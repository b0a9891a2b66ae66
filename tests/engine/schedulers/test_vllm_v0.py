"""vLLM v0's scheduler and block rules, worked by hand."""

from typing import Any

import pytest

import kvsim
from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.allocator import Demand
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.options import Paged
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.sequence import Sequence
from kvsim.simulation import Simulation
from kvsim.vllm.versions import V0

STEP = {"kind": "linear", "base_us": 1000}
MS = 10**9
PAGED = {"kind": "paged", "block_size": 16, "enable_prefix_caching": False}


class Steps(Observer):
    """Records (prompt tokens, decoding sequences) of every step, and the preempted ones."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.preempted: list[list[str]] = []

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        if plan.preempted:
            self.preempted.append([seq.id for seq in plan.preempted])
        if not plan.empty:
            self.steps.append((sum(chunk.new_tokens for chunk in plan.chunks), plan.num_decode))


def simulate(tables: Any, requests: list[Request], **parts: Any) -> tuple[Any, Steps]:
    made = {"allocator": [PAGED], "scheduler": {"kind": "vllm-v0"}, "step_time": STEP, **parts}
    scenario = Scenario.from_table({**tables(**made), "max_steps": 1})
    watched = Steps()
    found = Simulation(scenario, requests).run(scenario.allocator[0], "v0", observer=watched)
    return found, watched


def test_v0_step_computes_prompts_or_decodes_never_both(tables: Any) -> None:
    requests = [Request("a", 0, 20, 4), Request("b", 0, 30, 3), Request("c", int(1.5 * MS), 40, 2)]
    found, watched = simulate(tables, requests)
    # a and b; both decode; c alone; a, b (its last) and c (its last); a's last.
    assert watched.steps == [(50, 0), (0, 2), (40, 0), (0, 3), (0, 1)]
    rows = found.requests.set_index("id")
    assert dict(rows.finish_ps // MS) == {"a": 5, "b": 4, "c": 4}
    # The tokens that waited for c's prompt came two steps after the one before.
    gaps = found.summary["itl_s"]
    assert gaps["mean"] == pytest.approx((0.001 * 2 + 0.002 * 2 + 0.001 * 2) / 6)


def test_v0_prompts_share_a_step_up_to_max_num_batched_tokens(tables: Any) -> None:
    limits = {"kind": "vllm-v0", "max_num_batched_tokens": 64}
    requests = [Request(f"r{index}", 0, 30, 2) for index in range(3)]
    _, watched = simulate(tables, requests, scheduler=limits)
    assert watched.steps == [(60, 0), (30, 0), (0, 3)]


def test_v0_preempts_the_last_admitted_when_no_block_is_free(tables: Any) -> None:
    """Two blocks each of 5: both decode until one block is left and then none."""
    requests = [Request("first", 0, 16, 30), Request("last", 0, 16, 30)]
    parts = {
        "memory": {"num_gpu_blocks": 5},
        "allocator": [{**PAGED, "watermark": 0.0}],
    }
    found, watched = simulate(tables, requests, **parts)
    # With 17 to 32 tokens both hold two blocks and one is free. At 33 `first` takes it; `last`
    # finds none, gives back its two, and waits for the three blocks its 33 tokens need.
    assert watched.preempted == [["last"]]
    assert found.summary["recomputed_tokens"] == 32
    assert found.summary["requests"]["finished"] == 2


def test_v0_decoder_requires_a_free_block_even_if_it_needs_none(tables: Any) -> None:
    """Both prompts fill the pool; neither needs a block for its next token, yet one gives way."""
    requests = [Request("first", 0, 20, 5), Request("last", 0, 20, 5)]
    parts = {"memory": {"num_gpu_blocks": 4}, "allocator": [{**PAGED, "watermark": 0.0}]}
    _, watched = simulate(tables, requests, **parts)
    assert watched.preempted[0] == ["last"]
    _, modern = simulate(tables, requests, **parts, scheduler={"kind": "continuous"})
    assert modern.preempted == []


def test_v0_allocates_every_block_except_the_watermark_at_admission(tables: Any) -> None:
    # 100 blocks, watermark 1: 99 blocks are the most anybody gets.
    parts: dict[str, Any] = {"memory": {"num_gpu_blocks": 100}}
    fits, too_long = Request("fits", 0, 99 * 16, 1), Request("long", 0, 99 * 16 + 1, 1)
    found, _ = simulate(tables, [fits, too_long], **parts)
    (reason,) = found.requests.query("status == 'rejected'").reason
    assert "watermark" in reason
    assert found.summary["requests"]["finished"] == 1
    assert found.summary["memory"]["time_mean"]["metadata"] == 0
    assert found.summary["memory"]["peak_used"] == 0.99


def allocator(num_blocks: int, **options: Any) -> PagedAllocator:
    layout = KVLayout((KVGroup("full", 1, 100),))
    spec = MemorySpec(num_blocks * 1600, layout, 2048, 10**12, rules=V0.blocks)
    made = Paged(block_size=16, enable_prefix_caching=False, **options).build(spec)
    assert isinstance(made, PagedAllocator)
    return made


def test_v0_blocks_are_allocated_last_in_first_out() -> None:
    made = allocator(6, watermark=0.0)
    seqs = [Sequence(Request(name, 0, 32, 2), 0) for name in "abc"]
    for seq in seqs[:2]:
        made.admit(seq, Demand(32, 32, busy=True))
    given_back = set(made.blocks_of(seqs[0]))
    made.release(seqs[0])
    made.admit(seqs[2], Demand(32, 32, busy=True))
    assert set(made.blocks_of(seqs[2])) == given_back
    made.check()


@pytest.mark.parametrize(("watermark", "admitted"), [(None, False), (0.0, True), (0.01, False)])
def test_v0_watermark_defaults_to_one_percent(watermark: float | None, admitted: bool) -> None:
    made = allocator(100, watermark=watermark)
    seq = Sequence(Request("all", 0, 1600, 1), 0)
    assert (made.admit(seq, Demand(1600, 1600)) is not None) is admitted


def test_pool_without_a_block_is_a_one_line_error() -> None:
    with pytest.raises(InputError, match="no block"):
        allocator(0)


def test_v0_block_rules_apply_to_v0_only(tables: Any) -> None:
    (run,) = kvsim.simulate(tables(allocator=[PAGED]), [Request("a", 0, 10, 3)]).runs
    assert run.summary["memory"]["time_mean"]["metadata"] == 16 / 4096
