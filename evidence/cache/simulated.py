"""Small simulated runs for the equality checks: every allocator and placement, on an overloaded
pool.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numpy.random import PCG64, Generator

from kvsim.memory import ALLOCATORS
from kvsim.memory.arena import PLACEMENTS
from kvsim.plumbing.units import PS_PER_MS
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

if TYPE_CHECKING:
    from evidence.cache.recorder import StepRecorder
    from evidence.prove.replay import Equality
    from kvsim.backend.transformer.decoder import Decoder

Table = dict[str, Any]

PAGED: dict[str, Table] = {
    "paged": {"kind": "paged", "block_size": 4},
    "paged without prefix cache": {
        "kind": "paged",
        "block_size": 16,
        "enable_prefix_caching": False,
    },
}
CONTIGUOUS: dict[str, Table] = {
    "max-buffer": {"kind": "max-buffer", "reserve": "exact"},
    "doubling": {"kind": "doubling", "initial_tokens": 4},
}
POOL_TOKENS = 256
LONGEST = 64


PREEMPTING = PAGED | {"doubling": CONTIGUOUS["doubling"]}  # a buffer that is whole never needs to
SWAPPING: Table = {"preemption_mode": "swap"}
# Host memory for 96 blocks, behind 64 of the device, over a link that loads wait for.
HOST_MEMORY: Table = {
    "kind": "vllm-offloading",
    "kv_offloading_size": 0.1875,
    "offload_prompt_only": False,
    "load_gb_per_s": 2.0,
    "store_gb_per_s": 2.0,
}


def allocators() -> dict[str, Table]:
    """Every allocator that a KV store supports, with every placement, by name.

    Options that a name does not mention are at their defaults.
    """
    placed = {
        f"{name}, {placement}": table | {"placement": placement}
        for name, table in CONTIGUOUS.items()
        for placement in PLACEMENTS
    }
    named = PAGED | placed
    kinds = {table["kind"] for table in named.values()}
    others = {
        kind: {"kind": kind}
        for kind in ALLOCATORS
        if kind not in kinds and ALLOCATORS.parse({"kind": kind}, "allocator").store is not None
    }
    return named | others


def runs(seed: int) -> Iterator[tuple[str, Simulation]]:
    """Small runs by name: one per allocator, some with swapping preemption, and some that offload
    blocks to host memory and load them again.
    """
    for name, table in allocators().items():
        yield name, small_run(table, seed)
    for name, table in PREEMPTING.items():
        yield f"{name}, swapping", small_run(table, seed, scheduler=SWAPPING)
    for chunk_blocks in (1, 3):
        tier = HOST_MEMORY | {"blocks_per_chunk": chunk_blocks}
        name = f"paged, host memory, blocks_per_chunk = {chunk_blocks}"
        yield name, small_run(PAGED["paged"], seed, tier=tier)


def requests(seed: int, count: int) -> list[Request]:
    """Bursts of requests that overload the pool; half of the prompts share a prefix, some have n =
    2.
    """
    random = Generator(PCG64(seed))
    made = []
    for at in range(count):
        prompt, output = int(random.integers(1, 30)), int(random.integers(1, 30))
        shared = min(int(random.integers(0, 25)), prompt)
        runs = ((100, shared), (10_000 * (at + 1), prompt - shared))
        made.append(
            Request(
                id=str(at),
                arrival_ps=int(random.integers(0, 40)) * PS_PER_MS,
                prompt_tokens=prompt,
                output_tokens=output,
                prompt_runs=runs if at % 2 else None,
                n=2 if at % 5 == 3 else 1,
            )
        )
    return sorted(made, key=lambda request: request.arrival_ps)


def small_run(
    allocator: Table,
    seed: int = 0,
    count: int = 25,
    scheduler: Table | None = None,
    tier: Table | None = None,
) -> Simulation:
    """A simulation of `count` small requests, one step at a time, that must preempt."""
    # torch's allocator takes 2 MiB at the least, four tokens of this model.
    tokens = POOL_TOKENS * (4 if allocator.get("placement") == "torch-caching" else 1)
    table = {
        "max_steps": 1,
        "model": {"name": "llama-2-7b", "max_model_len": LONGEST},
        "device": {"name": "a100-80gb"},
        "memory": {"kv_cache_tokens": tokens},
        "allocator": [allocator],
        "scheduler": {"kind": "continuous", "max_num_batched_tokens": 32, **(scheduler or {})},
        "tier": [] if tier is None else [tier],
    }
    return Simulation(Scenario.from_table(table), requests(seed, count))


def replay_run(
    simulation: Simulation, decoder: "Decoder", device: str = "cpu"
) -> "tuple[Equality, StepRecorder]":
    """Replay the run's steps on a KV store of the allocator's kind; compare to recomputation."""
    from evidence.cache.recorder import record_steps
    from evidence.prove.replay import replay
    from kvsim.backend.simulated.stores import build_store, with_host_pool

    options = simulation.scenario.allocator[0]
    recorder = record_steps(simulation, options, decoder.shape.vocab)
    allocator = recorder.scheduler.allocator
    store = build_store(recorder.store, allocator, decoder.shape, device)
    if recorder.host_slots:
        store = with_host_pool(store, recorder.host_slots)
    return replay(recorder.steps, decoder, store), recorder
