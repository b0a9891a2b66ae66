"""Page groups: vAttention's published sizes, and a case worked by hand."""

from pathlib import Path
from typing import Any

import pytest

import kvsim
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.page_groups import PageGroups, tensors
from kvsim.model import ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import KIB, MIB
from kvsim.request import Request


def yi(layers: int, kv_heads: int) -> KVLayout:
    return KVLayout((KVGroup("full", layers, 2 * layers * kv_heads * 128 * 2),))


@pytest.mark.parametrize(
    ("layout", "gpus", "kib", "tokens", "waste_mib"),
    [
        (yi(32, 4), 1, 64, 64, 4),  # Yi-6B
        (yi(32, 4), 1, 2048, 2048, 128),
        (yi(32, 8), 1, 64, 32, 4),  # Llama-3-8B
        (yi(32, 8), 1, 256, 128, 16),
        (yi(60, 4), 2, 64, 64, 15),  # Yi-34B, 8 heads on two GPUs
        (yi(60, 4), 2, 256, 256, 60),
        (yi(60, 4), 2, 2048, 2048, 480),
    ],
)
def test_page_group_tokens_and_worst_waste_are_as_published(
    layout: KVLayout, gpus: int, kib: int, tokens: int, waste_mib: int
) -> None:
    allocator = PageGroups(page_group_kib=kib).build(  # type: ignore[arg-type]
        MemorySpec(8 << 30, layout, 4096, 1)
    )
    assert allocator.block_size == tokens
    count, _ = tensors(layout)
    assert gpus * count * kib * KIB == waste_mib * MIB


def test_bytes_of_a_page_group_below_one_token_count_as_rounding() -> None:
    """Phi-3-mini: 6,144 bytes of keys a token and layer, so 64 KiB hold 10 tokens and 4,096 bytes
    of nothing, in each of 64 tensors.
    """
    options = ModelOptions(name="phi-3-mini-4k")
    count, token_bytes = tensors(options.layout(options.build(Path())))
    assert (count, token_bytes) == (64, 6144)
    (found,) = kvsim.simulate(
        {
            "model": {"name": "phi-3-mini-4k"},
            "device": {"name": "a100-40gb"},
            "memory": {"kv_cache_tokens": 1000},
            "allocator": [{"kind": "page-groups", "page_group_kib": 64}],
            "step_time": {"kind": "linear", "base_us": 1000},
            "max_steps": 1,
        },
        [Request("r", 0, 25, 4)],
    ).runs
    first = found.memory[found.memory.steps == 1].iloc[0]
    slot = 64 * 6144
    # 25 of 30 slots hold the prompt; 28 will be filled.
    assert first.used_bytes == 25 * slot
    assert first.reserved_bytes == 3 * slot
    assert first.overprovisioned_bytes == 2 * slot
    assert first.rounding_bytes == 3 * 64 * 4096
    assert first.metadata_bytes == 1000 * slot % (64 * 64 * KIB)


def test_larger_page_groups_admit_fewer_sequences() -> None:
    def batched(kib: int) -> float:
        tables: dict[str, Any] = {
            "model": {"name": "llama-3-8b"},
            "device": {"name": "a100-80gb"},
            "memory": {"kv_cache_bytes": 4 << 30},
            "allocator": [{"kind": "page-groups", "page_group_kib": kib}],
            "scheduler": {"kind": "continuous", "max_num_batched_tokens": 1 << 16},
            "step_time": {"kind": "linear", "base_us": 1000},
        }
        requests = [Request(f"{i}", 0, 140, 10) for i in range(300)]
        (found,) = kvsim.simulate(tables, requests).runs
        return float(found.memory.num_running.max())

    # 149 slots: 5 groups of 32 tokens (20 MiB), or one of 1,024 (128 MiB).
    assert batched(64) == (4 << 30) // (20 << 20)
    assert batched(2048) == (4 << 30) // (128 << 20)


def test_a_recurrent_model_is_refused() -> None:
    layout = KVLayout((KVGroup("recurrent", 1, 0, state_bytes=64), KVGroup("full", 1, 64)))
    with pytest.raises(InputError, match="recurrent"):
        PageGroups().build(MemorySpec(1 << 30, layout, 512, 1))


def test_a_pool_below_one_page_group_a_tensor_is_refused() -> None:
    with pytest.raises(InputError, match="page_group_kib"):
        PageGroups().build(MemorySpec(1 << 20, yi(32, 8), 512, 1))
