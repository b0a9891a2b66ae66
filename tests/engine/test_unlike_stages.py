"""Pipeline stages on GPUs of several kinds: the pool of each, the time of each, and the pace."""

from typing import Any

import pytest

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step import Chunk, StepShape
from kvsim.step_time.stages import StageTimes

SLOW = {"name": "slow", "memory_gib": 16, "bandwidth_gb_per_s": 400, "fp16_tflops": 60}
FAST = {"name": "fast", "memory_gib": 24, "bandwidth_gb_per_s": 1600, "fp16_tflops": 240}
REQUESTS = [Request(f"r{at}", at * 10**9, 300 + 40 * at, 60) for at in range(12)]


def tables(*devices: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """A scenario with one stage on each of these devices; the first is in [device]."""
    first, *others = devices
    numbered = [{"number": at, **each} for at, each in enumerate(others, 2)]
    return {
        "model": {
            "name": "llama-3.1-8b",
            "pipeline_parallel_size": len(devices),
            "max_model_len": 4096,
        },
        "device": {**first, "stage": numbered} if numbered else first,
        "memory": {"weights_gib": 8, "activation_gib": 1, "other_gib": 0.5},
        "allocator": [{"kind": "paged"}],
        "step_time": {"kind": "roofline"},
        **parts,
    }


def sized(*devices: dict[str, Any], **parts: Any) -> Simulation:
    return Simulation(Scenario.from_table(tables(*devices, **parts)), [Request("r", 0, 8, 8)])


def test_each_stage_has_the_pool_of_its_own_gpus() -> None:
    """0.92 of the memory, less 9.5 GiB of weights, activations and the rest. A block of 16 tokens
    has keys and values of 16 layers with 8 heads of 128 values of 2 bytes.
    """
    block_bytes = 16 * 16 * 2 * 8 * 128 * 2
    by_hand = [int(int(gib * GIB * 0.92) - 9.5 * GIB) // block_bytes for gib in (24, 16, 24)]
    made = sized(FAST, SLOW)
    assert [share.num_gpu_blocks for share in made.stages] == by_hand[:2]
    assert [share.device for share in made.stages] == ["fast", "slow"]
    assert [share.device_bytes for share in made.stages] == [24 * GIB, 16 * GIB]
    assert made.pool.engine_num_gpu_blocks == by_hand[1]
    assert made.pool.total_bytes == 16 * GIB
    (note,) = [text for about, text in made.known_before if about == "pool"]
    assert note.startswith(f"Stage 2 (slow) decides the blocks of all stages: {by_hand[1]:,}; ")
    assert f"stage 1 has room for {by_hand[0]:,} (fast)" in note


def test_moving_layers_to_the_larger_gpu_equalises_the_pools() -> None:
    def blocks(layers: str) -> list[int]:
        model = {**tables(FAST, SLOW)["model"], "pp_layer_partition": layers}
        memory = {"gpu_memory_utilization": 0.9}
        return [
            share.num_gpu_blocks for share in sized(FAST, SLOW, model=model, memory=memory).stages
        ]

    even, moved = blocks("16,16"), blocks("20,12")
    assert min(moved) > 1.5 * min(even)


@pytest.mark.parametrize("ahead", [False, True])
def test_stages_with_one_device_name_equal_a_single_device(ahead: bool) -> None:
    """Tables of [[device.stage]] that say what [device] says change nothing, to the last bit."""
    scheduler = {"kind": "continuous", "async_scheduling": ahead}
    for parts in ({}, {"memory": {"num_gpu_blocks": 90}}):
        spelled = tables(FAST, FAST, FAST, scheduler=scheduler, **parts)
        spelled["device"]["stage"].pop()
        plain = {**spelled, "device": FAST}
        (one,) = kvsim.simulate(spelled, REQUESTS).runs
        (other,) = kvsim.simulate(plain, REQUESTS).runs
        assert one.requests.equals(other.requests)
        assert one.memory.equals(other.memory)


def test_each_stage_takes_the_time_of_its_own_device() -> None:
    shape = StepShape((Chunk(512, 0),), 16, 16 * 700, 700)
    mixed = sized(FAST, SLOW, FAST).step_time
    fast, slow = sized(FAST, FAST, FAST).step_time, sized(SLOW, SLOW, SLOW).step_time
    assert isinstance(mixed, StageTimes)
    assert isinstance(fast, StageTimes)
    assert isinstance(slow, StageTimes)
    of_fast, of_slow = fast.stage_ps(shape), slow.stage_ps(shape)
    assert mixed.stage_ps(shape) == [of_fast[0], of_slow[1], of_fast[2]]
    assert of_slow[1] > 2 * of_fast[1]
    run, whole = mixed.decode_run(16, 16 * 700, 700), fast.decode_run(16, 16 * 700, 700)
    assert run.first_ps > whole.first_ps
    assert run.growth_ps > whole.growth_ps


def test_stage_copies_run_at_the_slower_link() -> None:
    nvlink, pcie = {**FAST, "peer_gb_per_s": 300}, {**FAST, "peer_gb_per_s": 25}
    times = sized(nvlink, nvlink, {**pcie, "name": "other"}).step_time
    assert isinstance(times, StageTimes)
    # 1,000 tokens of two states of 4,096 values of 2 bytes, after 10 us.
    num_bytes = 1000 * 2 * 4096 * 2
    assert times.send_ps(1000) == pytest.approx(
        [10e6 + num_bytes / 300e9 * 1e12, 10e6 + num_bytes / 25e9 * 1e12], abs=1
    )
    assert times.send_ps(0) == [0, 0]


@pytest.mark.parametrize("order", [(FAST, SLOW), (SLOW, FAST)])
def test_slowest_stage_sets_the_time_per_output_token(order: tuple[dict[str, Any], ...]) -> None:
    """Two sequences in two micro-batches: each token waits for the other's in the slow stage, so
    two of its steps lie between tokens, and the fast stage is hidden.
    """
    made = tables(*order, memory={"num_gpu_blocks": 400})
    made["scheduler"] = {"kind": "continuous", "max_num_batched_tokens": 256}
    made["allocator"] = [{"kind": "paged", "enable_prefix_caching": False}]

    def finish_ps(output: int) -> list[int]:
        requests = [Request(name, 0, 256, output) for name in ("a", "b")]
        (run,) = kvsim.simulate(made, requests).runs
        return list(run.requests["finish_ps"])

    times = Simulation(Scenario.from_table(made), []).step_time
    assert isinstance(times, StageTimes)
    place = order.index(SLOW)
    least, most = (
        2 * times.stage_ps(StepShape((), 1, context, context))[place] for context in (356, 456)
    )
    for before, after in zip(finish_ps(100), finish_ps(200), strict=True):
        assert least <= (after - before) / 100 <= most


def test_stage_table_without_a_name_overrides_single_figures() -> None:
    stage = [{"number": 1, "memory_gib": 20}]
    parts = {"device": {"name": "rtx-4090", "stage": stage}}
    made = sized(FAST, FAST, **parts)
    assert made.devices[0].memory_bytes == 20 * GIB
    assert made.devices[0].bandwidth_bytes_per_s == made.devices[1].bandwidth_bytes_per_s
    assert made.pool.engine_num_gpu_blocks == made.stages[0].num_gpu_blocks


def test_stage_too_small_for_a_given_pool_is_named() -> None:
    made = sized(FAST, SLOW, memory={"kv_cache_bytes": 14 * GIB})
    (over, _) = [text for about, text in made.known_before if about == "pool"]
    assert "more than the 16.00 GiB of one slow" in over


@pytest.mark.parametrize(
    ("device", "said", "where"),
    [
        ({"name": "h100", "stage": [{"number": 3, "name": "l40s"}]}, "no such pipeline", "number"),
        (
            {"name": "h100", "stage": [{"number": 0, "name": "l40s"}]},
            "got 0",
            "device.stage.0.number",
        ),
        ({"name": "h100", "stage": [{"number": 2}]}, "give the name", "device.stage"),
        (
            {"name": "h100", "stage": [{"number": 2, "name": "l40x"}]},
            "unknown",
            "device.stage.name",
        ),
        (
            {"name": "h100", "stage": [{"number": 2, "name": "my", "memory_gib": 9}]},
            "in full",
            "stage.name",
        ),
        ({"name": "h100", "stage": [{"number": 2, "name": "l40s"}] * 2}, "two tables", "device"),
        (
            {"name": "h100", "stage": [{"number": at, "name": "l40s"} for at in (1, 2)]},
            "every stage names",
            "device.name",
        ),
        ({"name": "h100", "stage": []}, "device.stage", "device.stage"),
    ],
)
def test_stage_tables_that_change_nothing_are_refused(device: Any, said: str, where: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        sized(FAST, FAST, device=device)
    assert where in str(error.value.where)


def test_stage_tables_without_pipeline_stages_are_refused() -> None:
    device = {"name": "h100", "stage": [{"number": 2, "name": "l40s"}]}
    with pytest.raises(InputError, match="no such pipeline stage"):
        sized(FAST, device=device)
