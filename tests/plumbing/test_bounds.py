"""Numbers that become money or time: refused where they are given, in one line, at once."""

import json
from typing import Any

import pytest

import kvsim
from kvsim.plumbing.errors import InputError

WORKLOAD = {
    "kind": "synthetic",
    "num_requests": 3,
    "arrivals": {"kind": "poisson", "rate_per_s": 5.0},
    "prompt": {"kind": "fixed", "tokens": 50},
    "output": {"kind": "fixed", "tokens": 20},
}
LINEAR = {"kind": "linear", "base_us": 8000, "prefill_token_us": 40, "decode_seq_us": 60}


def fault(**changed: Any) -> str:
    table = {
        "model": {"name": "opt-125m"},
        "device": {"name": "a100-40gb"},
        "memory": {"kv_cache_tokens": 4096},
        "allocator": [{"kind": "paged"}],
        "step_time": LINEAR,
        "workload": WORKLOAD,
        **changed,
    }
    with pytest.raises(InputError) as caught:
        kvsim.simulate(table)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("many", [10**9, 10**18, 10**20, 10**25])
def test_extreme_request_counts_are_refused(many: int) -> None:
    assert "num_requests" in fault(workload=WORKLOAD | {"num_requests": many})
    assert "workload.n" in fault(workload=WORKLOAD | {"n": many})


@pytest.mark.parametrize("way", ["kv_cache_bytes", "kv_cache_tokens", "num_gpu_blocks"])
@pytest.mark.parametrize("many", [9 * 10**18, 10**20, 10**25])
def test_extreme_pool_sizes_are_refused(way: str, many: int) -> None:
    assert fault(memory={way: many}).startswith(f"memory.{way}: ")


@pytest.mark.parametrize("slow", [1e15, 1e25, 1e300])
def test_extreme_step_times_are_refused_or_bounded(slow: float) -> None:
    message = fault(step_time=LINEAR | {"base_us": slow})
    assert "simulated time ends" in message or "base_us" in message


def test_steps_that_round_to_zero_are_refused() -> None:
    assert "no time" in fault(step_time={"kind": "linear", "base_us": 1e-20})


@pytest.mark.parametrize("slow", [1e-29, 1e-300])
def test_devices_with_rates_that_round_to_zero_are_refused(slow: float) -> None:
    device = {"name": "a100-40gb", "bandwidth_gb_per_s": slow}
    assert "device.bandwidth_gb_per_s" in fault(device=device)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", None),
        ("hidden_size", "many"),
        ("hidden_size", 10**12),
        ("num_attention_heads", {"first": 4}),
        ("max_position_embeddings", True),
        ("sliding_window", "all"),
        ("layer_types", {"0": "full_attention"}),
        ("rope_scaling", [1]),
        ("quantization_config", "gptq"),
        ("quantization_config", {"quant_method": "gptq", "bits": None, "group_size": "x"}),
        ("torch_dtype", 5),
    ],
)
def test_config_json_with_wrong_types_is_refused(tmp_path: Any, key: str, value: object) -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100,
        "max_position_embeddings": 512,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {key: value}))
    assert "config.json" in fault(model={"hf_config": str(path)})
    path.write_text('{"model_type": "llama", "hidden_size": NaN}')
    assert "NaN is not JSON" in fault(model={"hf_config": str(path)})
