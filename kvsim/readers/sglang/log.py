"""The start-up log of an SGLang server: its arguments and its pool."""

import re
from typing import Any

from kvsim.plumbing.counts import whole
from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.parsing.python_text import pairs_of
from kvsim.readers.reader import ENGINE_ITSELF, SERVER, Sniffed, Source
from kvsim.readers.sglang.args import KNOWN, LEFT_OUT, left_out_notes, split_attention, take

_ARGUMENTS = re.compile(r"server_args=ServerArgs(\(.*)")
_POOL = re.compile(r"max_total_num_tokens=(\d+)")
_TOLD = re.compile(
    r"(chunked_prefill_size|max_running_requests|context_len|max_prefill_tokens)=(-?\d+)"
)


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
                pairs = pairs_of(arguments[1], {*KNOWN, *LEFT_OUT})
                take(found, pairs, source.name)
                split_attention(found, source.name, resolved=True)
                notes += left_out_notes(pairs)
            pool = _POOL.search(line)
            if pool:
                tokens = whole(pool[1])  # several ranks: the least
                found["kv_cache_tokens"] = min(tokens, found.get("kv_cache_tokens", tokens))
                take(found, dict(_TOLD.findall(line)), source.name)
        return Description(ServerSettings.parse(found, source.name), notes=tuple(notes))
