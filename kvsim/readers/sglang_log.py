"""The start-up log of an SGLang server: its arguments and its pool."""

import re
from collections.abc import Callable
from typing import Any

from kvsim.plumbing.counts import whole
from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.parsing.python_text import pairs_of
from kvsim.readers.reader import ENGINE_ITSELF, SERVER, Sniffed, Source
from kvsim.readers.vllm.args import (
    UNSAID,
    dtype,
    fraction,
    kv_dtype,
    text,
    truth,
)

_POLICIES = ("fcfs", "lpm")  # that kvsim has
_WHOLE_PROMPTS = "chunked_prefill_size"  # of which -1 says something
_ARGUMENTS = re.compile(r"server_args=ServerArgs(\(.*)")
_POOL = re.compile(r"max_total_num_tokens=(\d+)")
_TOLD = re.compile(
    r"(chunked_prefill_size|max_running_requests|context_len|max_prefill_tokens)=(-?\d+)"
)
_KNOWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "model_path": ("model", text),
    "served_model_name": ("served_model_name", text),
    "tp_size": ("tensor_parallel_size", whole),
    "pp_size": ("pipeline_parallel_size", whole),
    "dp_size": ("data_parallel_size", whole),
    "dtype": ("dtype", dtype),
    "kv_cache_dtype": ("kv_cache_dtype", kv_dtype),
    "context_length": ("max_model_len", whole),
    "context_len": ("max_model_len", whole),
    "page_size": ("block_size", whole),
    "max_running_requests": ("max_num_seqs", whole),
    "chunked_prefill_size": ("chunked_prefill_size", int),
    "max_prefill_tokens": ("max_prefill_tokens", whole),
    "schedule_policy": ("schedule_policy", lambda name: name if name in _POLICIES else None),
    "schedule_conservativeness": ("schedule_conservativeness", fraction),
    "enable_mixed_chunk": ("enable_mixed_chunk", truth),
    "disable_overlap_schedule": ("disable_overlap_schedule", truth),
    "disable_radix_cache": ("enable_prefix_caching", lambda value: not truth(value)),
}


class SGLangLog(Source):
    """Settings alone: its step lines count tokens, not the pool over time."""

    rank = ENGINE_ITSELF
    what = "an SGLang server's log"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By lines that only this engine prints."""
        return source.document is None and source.holds(
            "server_args=ServerArgs(", "max_total_num_tokens="
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Its arguments, then what came of them."""
        found: dict[str, Any] = {"engine": "sglang"}
        notes: list[str] = []
        for line in source.string().splitlines():
            arguments = _ARGUMENTS.search(line)
            if arguments:
                pairs = pairs_of(arguments[1], _KNOWN)
                _take(found, pairs, source.name)
                policy = pairs.get("schedule_policy", _POLICIES[0])
                if policy not in _POLICIES:
                    notes.append(f"schedule_policy {policy} is not one that kvsim has: fcfs stands")
            pool = _POOL.search(line)
            if pool:
                tokens = whole(pool[1])  # several ranks: the least
                found["kv_cache_tokens"] = min(tokens, found.get("kv_cache_tokens", tokens))
                _take(found, dict(_TOLD.findall(line)), source.name)
        return Description(ServerSettings.parse(found, source.name), notes=tuple(notes))


def _take(found: dict[str, Any], pairs: dict[str, Any], where: str) -> None:
    for name, value in pairs.items():
        if value is None:
            continue
        if name in _KNOWN and (value not in UNSAID or name == _WHOLE_PROMPTS):
            setting, read = _KNOWN[name]
            try:
                known = read(value)
            except (TypeError, ValueError):
                raise InputError("no value of it", where=f"{where}: {name}", value=value) from None
            if known is not None:
                found[setting] = known
