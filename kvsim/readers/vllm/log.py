"""The log of a vLLM server: its start-up, and its gauges every ten seconds.

Lines differ between versions; each pattern matches a line that some version from 0.6 to 0.33
prints. If several workers report a pool, the smallest is used, as the engine does.
"""

import re
from typing import Any

from kvsim.plumbing.counts import whole
from kvsim.readers.description import Description, GaugeSeries, ServerSettings
from kvsim.readers.parsing.ledger import left_lines
from kvsim.readers.parsing.python_text import inside, pairs_of, set_names
from kvsim.readers.parsing.unread_flags import printed_notes
from kvsim.readers.reader import ENGINE_ITSELF, MEASURED, SERVER, Sniffed, Source
from kvsim.readers.vllm.args import KNOWN, quantization_notes, settings_of
from kvsim.readers.vllm.harmless import HARMLESS
from kvsim.readers.vllm.log_gauges import gauge_lines
from kvsim.readers.vllm.log_steps import step_lines

_NUMBER = r"([\d,]+(?:\.\d+)?)"
_VERSION = re.compile(r"(?:engine \(v|API server version |\bversion )(\d+\.\d+(?:\.\d+)?[\w.+]*)")
_UNTAGGED = ("0.0.", "0.1.dev")  # what a checkout without tags calls itself
_ARGUMENTS = re.compile(r"(?:non-default args: |args: Namespace)(.*)")
_ENGINE = re.compile(r"Initializing an? (?:V\d )?LLM engine ")
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("kv_cache_tokens", re.compile(rf"[GXC]PU(?: \+ host)? KV cache size: {_NUMBER} tokens")),
    ("num_gpu_blocks", re.compile(rf"# (?:GPU|CUDA|cuda) blocks: {_NUMBER}")),
    ("available_kv_gib", re.compile(rf"[Aa]vailable KV cache memory: {_NUMBER} ?GiB")),
    ("available_kv_gib", re.compile(rf"reserved for KV Cache is {_NUMBER} ?GiB")),
    ("available_kv_gib", re.compile(rf"\bkv_cache_size={_NUMBER}GiB")),
    ("available_kv_gib", re.compile(rf"\bavailable_kv_cache_memory {_NUMBER}GiB")),
    ("available_kv_gib", re.compile(rf"Current kv cache memory in use is {_NUMBER} GiB")),
    ("gpu_memory_utilization", re.compile(rf"\bgpu_memory_utilization[ =(]+{_NUMBER}")),
    ("gpu_memory_utilization", re.compile(rf"current --gpu-memory-utilization={_NUMBER}")),
    ("gpu_memory_utilization", re.compile(rf"Desired GPU memory utilization is \({_NUMBER},")),
    ("weights_gib", re.compile(rf"[Mm]odel (?:loading took|weights take) {_NUMBER} ?GiB")),
    ("weights_gib", re.compile(rf"Loading model weights took {_NUMBER} GB")),  # 0.6: GiB, miscalled
    ("max_model_len", re.compile(rf"Maximum concurrency for {_NUMBER} tokens per request")),
    ("max_model_len", re.compile(rf"Using max model len {_NUMBER}")),
    ("max_num_batched_tokens", re.compile(rf"with max_num_batched_tokens={_NUMBER}")),
    ("free_memory_gib", re.compile(rf"Free memory on device \({_NUMBER}/[\d.]+ GiB\)")),
    ("gpu_memory_gib", re.compile(rf"Free memory on device \([\d.]+/{_NUMBER} GiB\)")),
    ("gpu_memory_gib", re.compile(rf"total_gpu_memory[ =(]+{_NUMBER} ?GiB")),
    ("block_size", re.compile(rf"Setting attention block size to {_NUMBER} tokens")),
)
_OVERRIDE = re.compile(r"Overriding num_gpu_blocks=([1-9]\d*) with num_gpu_blocks_override=(\d+)")
_REFUSED = re.compile(rf"the models?'s max seq len \({_NUMBER}\)")  # of a start that failed
_SPECULATES = re.compile(r"\bspeculative_config=(?!None)[\w<]|'speculative_config': \{")
_CONNECTOR = re.compile(r"\bkv_connector'?(?:=|: )'(\w+)'")
_NESTED = ("speculative_config", "kv_transfer_config")
_PLAIN = KNOWN.keys() - set(_NESTED)
_NAMED = (*_NESTED, "model_tag", "max_seq_len")  # by what else the log says
_CAPTURED = "max_cudagraph_capture_size"  # of a compilation_config
_DRAFTS = ("method", "model", "num_speculative_tokens", "num_spec_tokens")
_LEAST = ("available_kv_gib", "num_gpu_blocks", "kv_cache_tokens")  # of several workers
_FRACTIONS = (
    "free_memory_gib",
    "available_kv_gib",
    "weights_gib",
    "gpu_memory_gib",
    "gpu_memory_utilization",
)
_READ = (
    *(_VERSION, _ARGUMENTS, _ENGINE, _OVERRIDE, _REFUSED, _SPECULATES, _CONNECTOR),
    *(pattern for _, pattern in _PATTERNS),
)
# One of these stands in every line that is read.
_MARKS = (
    *("version", "args", "config", "GiB", " GB", "blocks", "tokens", "memory", "seq len"),
    *("Free memory", "Asynchronous", "speculative", "max_num_batched_tokens", "model len"),
)
_SIGNS = (
    "Initializing a V1 LLM engine",
    "Initializing an LLM engine",
    "non-default args",
    "PU KV cache size:",
    "host KV cache size:",
    "Avg prompt throughput",
    "iteration elapsed time: ",
    "Available KV cache memory",
    "# GPU blocks:",
    "# CUDA blocks:",
    "the current vLLM instance can use",
    "Setting attention block size to",
    "KV cache is needed, which is larger than the available KV cache memory",
)


class VllmLog(Source):
    """The log of the API server and its workers, complete or in excerpts."""

    rank = ENGINE_ITSELF
    what = "a vLLM server's log"
    gives = SERVER | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the log by lines that only vLLM prints."""
        return source.may_be_log and source.holds(*_SIGNS)

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read settings and steps, and gauges from the ten-second lines."""
        notes: list[str] = []
        everything = source.string().splitlines()
        lines = _last_start([each for each in everything if _tells(each)], notes)
        found = _settings(lines, source.name, notes)
        samples = gauge_lines(lines, notes)
        gauges = GaugeSeries(samples, "local") if samples else None
        steps = step_lines(lines, notes)
        if any("Asynchronous scheduling is enabled" in line for line in lines):
            found["async_scheduling"] = True
        elif any("Asynchronous scheduling is disabled" in line for line in lines):
            found["async_scheduling"] = False
        if "speculative_config" not in found and any(map(_SPECULATES.search, lines)):
            notes.append("speculative decoding is left out: the log does not name the drafter")
        connectors = {each[1] for line in lines for each in _CONNECTOR.finditer(line)}
        if connectors:
            notes.append(
                f"kv_transfer_config of a log is not read: {', '.join(sorted(connectors))}"
            )
        if str(found.get("engine_version", "")).startswith(_UNTAGGED):
            notes.append(f"version {found.pop('engine_version')}: a build of your own")
        notes += left_lines(everything, _READ, HARMLESS)
        settings = ServerSettings.parse({**found, "engine": "vllm"}, source.name)
        return Description(settings, gauges=gauges, steps=steps, notes=tuple(notes))


def _tells(line: str) -> bool:
    """Whether a line may match any pattern; most lines of a long log are about requests and are
    skipped.
    """
    return any(mark in line for mark in _MARKS)


def _last_start(lines: list[str], notes: list[str]) -> list[str]:
    """The lines from the server's last start on, if a log has several."""
    starts = [at for at, line in enumerate(lines) if _ARGUMENTS.search(line)]
    if len(starts) < 2:
        return lines
    notes.append(f"{len(starts)} starts of a server: the last one is taken")
    first = starts[-1]
    while first and _VERSION.search(lines[first - 1]):  # the version is printed just before
        first -= 1
    return lines[first:]


def _settings(lines: list[str], where: str, notes: list[str]) -> dict[str, Any]:
    """Settings from the log. Values that the engine resolved override those that were asked for."""
    asked: dict[str, Any] = {}
    config: dict[str, Any] = {}
    printed: dict[str, Any] = {}
    quantized: list[str] = []
    unread: list[str] = []
    for line in lines:
        version = _VERSION.search(line)
        if version and "engine_version" not in printed:
            printed["engine_version"] = version[1].rstrip(".")
        arguments = _ARGUMENTS.search(line)
        if arguments:
            pairs = pairs_of(arguments[1], _PLAIN)
            asked |= settings_of(pairs, where).reported() | _drafts(arguments[1])
            asked |= _captured(arguments[1])
            quantized = quantization_notes(pairs)
            unread = [name for name in set_names(arguments[1]) if name not in pairs]
        engine = _ENGINE.search(line)
        if engine:
            text = line[engine.end() :].partition("with config: ")[2]
            pairs = pairs_of(text, _PLAIN)
            config |= settings_of(pairs, where).reported() | _drafts(text) | _captured(text)
            quantized = quantization_notes(pairs) or quantized
            unread = unread or [name for name in set_names(text) if name not in pairs]
        override = _OVERRIDE.search(line)
        if override:
            printed["num_gpu_blocks"] = whole(override[2])
        for setting, pattern in _PATTERNS:
            match = pattern.search(line)
            if match:
                _take(printed, setting, match[1])
        refused = _REFUSED.search(line)
        if refused and "max_model_len" not in printed:
            printed["max_model_len"] = whole(refused[1])
    notes += quantized
    notes += printed_notes([name for name in unread if name not in _NAMED])
    return asked | config | printed


def _captured(text: str) -> dict[str, Any]:
    """The largest batch size captured as a CUDA graph, if the printed arguments have it."""
    inner = inside(text, "compilation_config")
    found = {} if inner is None else pairs_of(inner, (_CAPTURED,))
    size = str(found.get(_CAPTURED, ""))
    return {_CAPTURED: whole(size)} if size.isdecimal() and int(size) else {}


def _drafts(text: str) -> dict[str, Any]:
    """The speculative decoding config in printed arguments."""
    inner = inside(text, "speculative_config")
    found = {} if inner is None else pairs_of(inner, _DRAFTS)
    for key, value in found.items():
        if isinstance(value, str) and value.replace(".", "", 1).isdecimal():
            found[key] = float(value) if "." in value else whole(value)
    if "num_spec_tokens" in found:
        found["num_speculative_tokens"] = found.pop("num_spec_tokens")
    found = {key: value for key, value in found.items() if value is not None}
    return {"speculative_config": found} if found else {}


def _take(printed: dict[str, Any], setting: str, number: str) -> None:
    value = float(number.replace(",", "")) if setting in _FRACTIONS else whole(number)
    if setting == "weights_gib" and setting in printed:
        return  # a later line says the same with fewer digits
    if setting in _LEAST and setting in printed:
        value = min(value, printed[setting])
    if value > 0:
        printed[setting] = value
