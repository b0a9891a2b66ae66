"""The log of an SGLang server: its arguments, its memory, and values derived from its flags.

SGLang's GB are GiB. If several ranks report a pool, the smallest is used. If several models do, the
first is used: a drafter's comes second.
"""

import re
from typing import Any

from kvsim.plumbing.counts import whole
from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.parsing.ledger import left_lines
from kvsim.readers.parsing.python_text import pairs_of, set_names
from kvsim.readers.parsing.unread_flags import printed_notes
from kvsim.readers.reader import ENGINE_ITSELF, MEASURED, SERVER, Sniffed, Source
from kvsim.readers.sglang.args import (
    KNOWN,
    LEFT_OUT,
    left_out_notes,
    split_attention,
    take,
    unread_arguments,
)
from kvsim.readers.sglang.harmless import HARMLESS
from kvsim.readers.sglang.log_steps import step_lines

_ARGUMENTS = re.compile(r"server_args=ServerArgs(\(.*)")
_POOL = re.compile(r"max_total_num_tokens=(\d+)")
_TOLD = re.compile(
    r"(chunked_prefill_size|max_running_requests|context_len|max_prefill_tokens)=(-?\d+)"
)
_PAGE = re.compile(r"changing page_size from \S+ to (\d+)|[Ss]etting page[_ ]size to (\d+)")
_BYTES = re.compile(r"KV Cache is allocated\..{0,200}?K size: ([\d.]+) ?GB, V size: ([\d.]+) ?GB")
_ONE_SIZE = re.compile(r"KV Cache is allocated\..{0,200}?KV size: ([\d.]+) ?GB")
_TWO_POOLS = re.compile(r"SWAKVPool mem usage: ([\d.]+) ?GB")
_STATES = re.compile(r"Mamba Cache is allocated\..{0,200}?max_mamba_cache_size: (\d+)")
_BEFORE = re.compile(r"Load weight begin\..{0,200}?avail mem=([\d.]+) ?GB")
_WEIGHTS = re.compile(r"Load weight end\..{0,200}?mem usage=([\d.]+) ?GB")
_CHUNK = re.compile(r"\bchunked_prefill_size (?:is )?set to (\d+)")
_VERSION = re.compile(r"\b[Ss][Gg][Ll]ang(?:[ _]version)?[ =:]+v?(\d+\.\d+\.\d+\w*)")
_RANK = re.compile(r"^\[[\d :.,-]{1,40} ?(?:DP\d+ )?TP(\d+)\b")
_DEVICE = re.compile(r"device_name=(?:NVIDIA_)?(\w+)")
_READ = (
    *(_ARGUMENTS, _POOL, _PAGE, _BYTES, _ONE_SIZE, _TWO_POOLS, _STATES, _BEFORE, _WEIGHTS),
    *(_CHUNK, _VERSION, _DEVICE),
)
_SIGNS = (
    *("server_args=ServerArgs(", "max_total_num_tokens=", "KV Cache is allocated."),
    *("Load weight begin. avail mem=", "Load weight end. ", "Mamba Cache is allocated."),
    *("Decode batch", "Prefill batch"),
)


class SGLangLog(Source):
    """Settings and steps. There are no gauges: step lines give tokens, not pool usage over time."""

    rank = ENGINE_ITSELF
    what = "an SGLang server's log"
    gives = SERVER | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the log by lines that only SGLang prints."""
        return source.may_be_log and source.holds(*_SIGNS)

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the server's arguments, then the sizes it derived from them."""
        found: dict[str, Any] = {"engine": "sglang"}
        notes: list[str] = []
        lines = source.string().splitlines()
        ranks = 0
        for line in lines:
            arguments = _ARGUMENTS.search(line)
            if arguments:
                pairs = pairs_of(arguments[1], {*KNOWN, *LEFT_OUT})
                take(found, pairs, source.name)
                split_attention(found, source.name, resolved=True)
                notes += left_out_notes(pairs)
                notes += printed_notes(unread_arguments(set_names(arguments[1])))
            pool = _POOL.search(line)
            if pool:
                tokens = whole(pool[1])  # several ranks: the least
                found["kv_cache_tokens"] = min(tokens, found.get("kv_cache_tokens", tokens))
                take(found, dict(_TOLD.findall(line)), source.name)
            if rank := _RANK.match(line):
                ranks = max(ranks, int(rank[1]) + 1)
            _memory(found, line, notes)
        if ranks > 1:  # of which all lines are kept; one alone may be an excerpt
            found.setdefault("tensor_parallel_size", ranks)
        notes += left_lines(lines, _READ, HARMLESS)
        settings = ServerSettings.parse(found, source.name)
        steps = step_lines(lines)
        return Description(settings, steps=steps, notes=tuple(dict.fromkeys(notes)))


def _memory(found: dict[str, Any], line: str, notes: list[str]) -> None:
    """Read a line's figures on memory, page size, version and device."""
    if page := _PAGE.search(line):
        found["block_size"] = whole(page[1] or page[2])
    if size := _BYTES.search(line):
        _least(found, "available_kv_gib", float(size[1]) + float(size[2]))
    elif size := _ONE_SIZE.search(line):
        _least(found, "available_kv_gib", float(size[1]))
    if pools := _TWO_POOLS.search(line):
        found["available_kv_gib"] = float(pools[1])
    if states := _STATES.search(line):
        notes.append(f"the pool of states has {int(states[1]):,} of them: kvsim sizes it itself")
    if before := _BEFORE.search(line):
        found.setdefault("free_memory_gib", float(before[1]))
    if (weights := _WEIGHTS.search(line)) and float(weights[1]) > 0:
        found.setdefault("weights_gib", float(weights[1]))
    if (chunk := _CHUNK.search(line)) and whole(chunk[1]):
        found["chunked_prefill_size"] = whole(chunk[1])
    if version := _VERSION.search(line):
        found.setdefault("engine_version", version[1])
    if device := _DEVICE.search(line):
        notes.append(f"its kernels are for {device[1]}")


def _least(found: dict[str, Any], name: str, value: float) -> None:
    """Store the first positive value: the first pool is the model's, later ones are a drafter's."""
    if value > 0 and name not in found:
        found[name] = value
