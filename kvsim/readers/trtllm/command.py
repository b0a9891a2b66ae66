"""TensorRT-LLM's command line: `trtllm-serve MODEL --flags`."""

import re
from collections.abc import Callable
from typing import Any

from kvsim.plumbing.counts import whole
from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.parsing.command_source import CommandSource
from kvsim.readers.parsing.commands import Program
from kvsim.readers.reader import Sniffed
from kvsim.readers.vllm.args import fraction, text

_KNOWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
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
    known=_KNOWN,
    short={},
    switches=(),
    bare=re.compile(r"(trust_remote_code|enable_\w+|fail_fast\w*)$"),
)


class TrtLlmCommand(CommandSource):
    """`trtllm-serve MODEL --tp_size 2 --max_batch_size 64`."""

    what = "a `trtllm-serve` command line"
    program = PROGRAM
    quoting = (
        "[TensorRT-LLM][",
        "[TRT-LLM] [",
    )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The flags of the first such command."""
        asked = PROGRAM.arguments(source.string(), source.name)
        found: dict[str, Any] = {"engine": "tensorrt-llm"}
        if asked.version is not None:
            found["engine_version"] = asked.version
        for name, value in asked.known.items():
            setting, read = _KNOWN[name]
            try:
                found[setting] = read(value)
            except ValueError as fault:
                raise InputError(str(fault), where=f"{source.name}: {name}", value=value) from None
        settings = ServerSettings.parse(found, source.name)
        return Description(settings, notes=tuple(asked.notes()))
