"""Settings as JSON, under vLLM's names.

The file is meta.json of an observed run, or a list of such objects, one per run, each with the
`file` of its requests.
"""

import re
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.parsing.unread_flags import unread_notes
from kvsim.readers.reader import ENGINE_ITSELF, SERVER, Sniffed, Source
from kvsim.readers.vllm.args import KNOWN, quantization_notes, settings_of

_LEAST_KNOWN = 3  # of its keys
_NUMBER = re.compile(r"\s*(\d{1,12}(?:,\d{3})*)(?=[\s(;,])")  # before words
_SIZES = ("cudagraph_capture_sizes", "cuda_graph_sizes")
_TOLD = frozenset(("file", "source", "tick_seconds", "clock_ahead_s", "label", "name", "note"))
_MORE = ("gpu", "vllm_version", "num_gpu_blocks", "kv_cache_tokens", "gpu_memory_bytes", "policy")


class SettingsJson(Source):
    """A JSON object, or a list of objects, with a model and the engine's settings."""

    rank = ENGINE_ITSELF
    what = "settings as JSON"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the file by the key model and several of vLLM's settings."""
        value = source.document
        first = value[0] if isinstance(value, list) and value else value
        if not isinstance(first, dict) or "model" not in first or "kvsim" in first:
            return False
        return len(first.keys() & {*KNOWN, *_MORE}) >= _LEAST_KNOWN

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the settings; unknown keys are listed in a note."""
        notes: list[str] = []
        if isinstance(source.document, list):
            by_file = {
                str(each.get("file")): _settings(each, source.name, notes)
                for each in source.document
                if isinstance(each, dict)
            }
            return Description(by_file=by_file, notes=tuple(dict.fromkeys(notes)))
        return Description(_settings(source.object(), source.name, notes), notes=tuple(notes))


def _settings(table: dict[str, Any], where: str, notes: list[str]) -> ServerSettings:
    found: dict[str, Any] = {}
    nested = ("speculative_config", "kv_transfer_config", *_SIZES)
    plain = {
        key: value
        for key, value in table.items()
        if key in nested or not isinstance(value, dict | list)
    }
    unread = table.keys() - {*KNOWN, *_MORE, *_SIZES, *_TOLD}
    notes += unread_notes(sorted(unread), KNOWN)
    plain["num_gpu_blocks_override"] = plain.pop("num_gpu_blocks", None)
    plain["scheduling_policy"] = plain.pop("policy", None)
    for name, value in plain.items():
        try:
            found |= settings_of({name: value}, where).reported()
        except InputError:
            number = _NUMBER.match(value) if isinstance(value, str) else None
            if number is None:
                notes.append(f"{name}: {value!r} is no value of it, and is left out")
                continue
            found |= settings_of({name: number[1].replace(",", "")}, where).reported()
            notes.append(f"{name}: {value!r} is read as {number[1]}")
    notes += quantization_notes(plain)
    for key, setting in (("gpu", "gpu"), ("vllm_version", "engine_version")):
        if isinstance(table.get(key), str):
            found[setting] = table[key]
    tokens, memory = table.get("kv_cache_tokens"), table.get("gpu_memory_bytes")
    if isinstance(tokens, int):
        found["kv_cache_tokens"] = tokens
    if isinstance(memory, int | float):
        found["gpu_memory_gib"] = memory / GIB
    return ServerSettings.parse(found | {"engine": "vllm"}, where)
