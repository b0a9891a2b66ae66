"""Convert TensorRT-LLM's flags to settings; patterns of its command line."""

import re
from collections.abc import Callable
from typing import Any

from kvsim.plumbing.counts import whole
from kvsim.readers.parsing.commands import Program
from kvsim.readers.vllm.args import fraction, text

POLICIES = {
    "GUARANTEED_NO_EVICT": "guaranteed-no-evict",
    "MAX_UTILIZATION": "max-utilization",
}
KNOWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "model": ("model", text),
    "tp_size": ("tensor_parallel_size", whole),
    "pp_size": ("pipeline_parallel_size", whole),
    "max_batch_size": ("max_num_seqs", whole),
    "max_num_tokens": ("max_num_batched_tokens", whole),
    "max_seq_len": ("max_model_len", whole),
    "tokens_per_block": ("block_size", whole),
    "kv_cache_free_gpu_memory_fraction": ("free_gpu_memory_fraction", fraction),
    "free_gpu_memory_fraction": ("free_gpu_memory_fraction", fraction),
}
PROGRAM = Program(
    serves=re.compile(r"\btrtllm-serve(?:\s+serve)?\b(?!\.)"),
    image=re.compile(r"nvcr\.io/nvidia/tensorrt-llm/release(?::v?(\d+\.\d+(?:\.\d+)?))?\S*"),
    known=KNOWN,
    short={},
    switches=(),
    bare=re.compile(r"(trust_remote_code|enable_\w+|fail_fast\w*)$"),
)
