"""Ways to draft tokens ahead, and schedulers that verify them."""

from pathlib import Path
from typing import Any

_BLOCKS = str(Path(__file__).parent / "tiny_dflash.json")
METHODS: list[dict[str, Any]] = [
    {"method": "eagle", "num_speculative_tokens": 3, "acceptance_rate": 0.7},
    {"method": "eagle3", "num_speculative_tokens": 5, "acceptance_pattern": [5, 0, 2, 1],
     "disable_lookahead_block_hashes": True},
    {"method": "mtp", "num_speculative_tokens": 1, "synthetic_acceptance_rates": [0.8]},
    {"method": "draft_model", "model": "opt-125m", "num_speculative_tokens": 2,
     "synthetic_acceptance_length": 2.2},
    {"method": "ngram", "num_speculative_tokens": 4, "acceptance_rate": 0.3},
    {"method": "dflash", "hf_config": _BLOCKS, "num_speculative_tokens": 7, "acceptance_rate": 0.6},
]  # fmt: skip
SCHEDULERS: list[dict[str, Any]] = [
    {"kind": "continuous", "max_num_seqs": 8, "max_num_batched_tokens": 256},
    {"kind": "continuous", "async_scheduling": True},
    {"kind": "continuous", "policy": "priority", "max_num_batched_tokens": 24},
    {"kind": "continuous", "policy": "priority", "async_scheduling": True,
     "max_num_batched_tokens": 64},
    {"kind": "continuous", "long_prefill_token_threshold": 3, "max_num_batched_tokens": 40},
    {"kind": "continuous", "enable_chunked_prefill": False, "max_num_batched_tokens": 1024},
    {"kind": "continuous", "scheduler_reserve_full_isl": False, "victim": {"kind": "latest"}},
    {"kind": "continuous", "semantics": "vllm-0.27", "max_num_batched_tokens": 48},
]  # fmt: skip


def suits(config: dict[str, Any], scheduler: dict[str, Any]) -> bool:
    """Whether the scheduler knows the method, the drafts in time, and of their hashes."""
    newest = config["method"] == "dflash" or "disable_lookahead_block_hashes" in config
    if "semantics" in scheduler and newest:
        return False
    ahead = scheduler.get("async_scheduling") and "semantics" in scheduler
    return config["method"] != "ngram" or not ahead


def drafting(tables: Any, config: dict[str, Any] | None, **parts: Any) -> Any:
    """Scenario tables with tokens drafted by `config`; None: without drafts."""
    drafts = {} if config is None else {"speculative_config": config}
    allocator = parts.pop("allocator", [{"kind": "paged"}])
    return tables(allocator=allocator, **drafts, **parts)
