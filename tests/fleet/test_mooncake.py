"""Four replicas on Mooncake's conversation trace, against figures of other tools.

Round robin with memory for all: a 15-line script and ai-dynamo-runtime 1.6.1's offline replay give
the same reuse to six digits. Dynamo's KV router: its replay of the same fleet (mocker engine, its
default timing), where ties are drawn.
"""

import pytest
from support.public_traces import public_trace

from kvsim.simulation import simulate


def reuse(router: str, blocks: int) -> float:
    """Prompt tokens found in prefix caches, of all."""
    public_trace("conversation_trace.jsonl")
    result = simulate(
        {
            "model": {"name": "llama-3.1-8b"},
            "device": {"name": "h200"},
            "memory": {"num_gpu_blocks": blocks},
            "allocator": [{"kind": "paged", "block_size": 512}],
            "scheduler": {
                "kind": "continuous",
                "max_num_seqs": 256,
                "max_num_batched_tokens": 8192,
            },
            "step_time": {
                "kind": "linear",
                "base_us": 5000,
                "prefill_token_us": 5,
                "decode_seq_us": 20,
            },
            "workload": {"kind": "trace", "name": "mooncake-conversation"},
            "fleet": {"replicas": 4, "router": {"kind": router}, "regret": False},
        }
    )
    runs = [run.recorder for run in result.runs if run.recorder is not None]
    prompts = sum(int(each.finished.column("prompt_tokens").sum()) for each in runs)
    return result.fleets[0].prefix_cache.hit_tokens / prompts


def test_round_robin_reuses_what_every_fourth_request_finds() -> None:
    assert reuse("round-robin", 400_000) == pytest.approx(0.195509, abs=5e-7)


def test_dynamo_finds_as_much_as_its_own_replay() -> None:
    assert reuse("dynamo-kv", 8192) == pytest.approx(0.2525, abs=0.05)
