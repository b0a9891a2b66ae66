"""The start-up log of TensorRT-LLM, from its C++ runtime or its PyTorch backend."""

import re
from collections.abc import Callable
from typing import Any

from kvsim.plumbing.counts import whole
from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.parsing.ledger import left_lines
from kvsim.readers.reader import ENGINE_ITSELF, SERVER, Sniffed, Source
from kvsim.readers.trtllm.args import POLICIES

# Of lines that come twice, the later ones count: a first pool is made to profile in.
_PATTERNS: tuple[tuple[str, re.Pattern[str], Callable[[str], Any]], ...] = (
    ("block_size", re.compile(r"[Nn]umber of tokens per block: (\d+)"), whole),
    ("kv_cache_tokens", re.compile(r"max tokens in paged KV cache \((\d+)\)"), whole),
    ("max_num_batched_tokens", re.compile(r"\bmaxNumTokens: (\d+)"), whole),
    ("max_num_batched_tokens", re.compile(r"\bmax_num_tokens=(\d+)"), whole),
    ("max_num_seqs", re.compile(r"\bmaxNumSequences: (\d+)"), whole),
    ("max_num_seqs", re.compile(r"\bmax_batch_size=(\d+)"), whole),
    ("max_model_len", re.compile(r"\bmaxSequenceLen: (\d+)"), whole),
    ("max_model_len", re.compile(r"\bmax_seq_len=(\d+)"), whole),
    ("capacity_policy", re.compile(r"Capacity Scheduler Policy: (\w+)"), POLICIES.get),
    ("enable_prefix_caching", re.compile(r"KV cache block reuse is (enabled|disabled)"),
     lambda word: word == "enabled"),
    ("gpu_memory_gib", re.compile(r"device total memory ([\d.]+) GiB"), float),
    ("weights_gib", re.compile(r"weights \(inside torch\) in memory usage profiling: ([\d.]+)"),
     float),
    ("free_gpu_memory_fraction", re.compile(r"\bfraction is set (0?\.\d+)"), float),
    ("engine_version", re.compile(r"TensorRT.LLM version: v?(\d[\w.]*)"), str),
)  # fmt: skip


_HARMLESS = tuple(
    re.compile(pattern)
    for pattern in (
        r"Engine version|Refreshed the MPI|MPI (?:size|rank)|Rank \d+ is using GPU",
        r"Loaded engine size|Loading (?:weights|checkpoint)|Engine load time",
        r"Executor is|Model init",
        r"Using user-specified devices|Setting PyTorch memory fraction|NCCL|UCX|ucx",
        r"INFO: +(?:Started|Waiting|Application|Uvicorn|\d+\.)|(?:GET|POST) /\S* HTTP",
        r"\$ |Creating CUDA graph|CUDA graph (?:warmup|capture)|Autotuner|autotuner",
    )
)


class TrtLlmLog(Source):
    """Settings of the server, without the model, which the log does not give."""

    rank = ENGINE_ITSELF
    what = "a TensorRT-LLM server's log"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the log by the prefix of its lines."""
        return source.may_be_log and source.holds("[TensorRT-LLM][", "[TRT-LLM] [")

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the settings; of each kind of line the last one is used."""
        found: dict[str, Any] = {"engine": "tensorrt-llm"}
        lines = source.string().splitlines()
        for line in lines:
            for setting, pattern, read in _PATTERNS:
                match = pattern.search(line)
                value = read(match[1]) if match else None
                if value is not None and value != 0:
                    found[setting] = value
        notes = left_lines(lines, [pattern for _, pattern, _ in _PATTERNS], _HARMLESS)
        return Description(ServerSettings.parse(found, source.name), notes=tuple(notes))
