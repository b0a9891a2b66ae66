"""The log of llama-server, also inside Ollama's log: context, KV caches, slots, requests."""

import re
from typing import Any

from kvsim.plumbing.units import MIB
from kvsim.readers.description import Description, Requests, ServerSettings, SourceRequest
from kvsim.readers.llamacpp.args import cache_type, model_name
from kvsim.readers.llamacpp.harmless import HARMLESS
from kvsim.readers.parsing.ledger import left_lines
from kvsim.readers.reader import ENGINE_ITSELF, MEASURED, SERVER, STREAM, Sniffed, Source

_CONTEXT = re.compile(
    r"(?:llama_context|llama_new_context_with_model|llama_init_from_model): "
    r"(n_seq_max|n_ctx|n_batch|n_ubatch|kv_unified) {1,20}= (\w{1,20})"
)
_CACHE = re.compile(
    r"llama_kv_cache: size = {1,9}([\d.]{1,20}) MiB \( {0,9}(\d{1,12}) cells, {1,9}\d{1,6} layers, "
    r"{1,9}(\d{1,6})/ {0,9}(\d{1,6}) seqs\), K \((\w{1,12})\)"
)
# Of llama.cpp before 2025, llama-cpp-python and ik_llama.cpp.
_OLDER_CACHE = re.compile(
    r"KV self size {1,9}= {1,9}([\d.]{1,20}) MiB, K \((\w{1,12})\)|"
    r"llama_kv_cache_init: {1,20}(?!\S* KV buffer)|KV buffer size = {1,9}[\d.]{1,20} MiB"
)
_SLOTS = re.compile(
    r"initializing slots.{0,60}?n_slots ?= ?(\d{1,6})|initializing slots, n_slots = (\d{1,6})"
)
_NAME = re.compile(r"general\.(?:base_model\.0\.)?name {1,40}(?:str {1,40})?= (\S.*)$")
_FILE = re.compile(r"(?:loading model|loaded meta data .{0,80} from) '?(\S{1,500}\.gguf)")
_BUILD = re.compile(r"^(?:[\d.]{1,40} I )?build: (\d{1,9}) \(")
_DEVICE = re.compile(r"using device \S{1,40} \(([^)]{1,100})\)")
_WEIGHTS = re.compile(
    r"load_tensors: {1,20}\S{1,40} (?:model )?buffer size = {1,9}([\d.]{1,20}) MiB"
)
_HOST = re.compile(r"prompt cache is enabled, size limit: (no limit|\d{1,12})")
_OFF = re.compile(r"prompt cache is disabled")
_CLOCK = re.compile(r"(\d{1,9})\.(\d\d)\.(\d{3})\.(\d{3}) [DIWE] ")
_TASK = re.compile(r"slot {1,12}[^|]{1,40}\| task (\d{1,12}) \|")
_PROMPT = re.compile(r"new prompt, .{0,80}?(?:task\.n_tokens|n_prompt_tokens) = (\d{1,12})")
_EVAL = re.compile(
    r"(prompt )?eval time = {1,12}(\d{1,12}\.\d{1,6}) ms / {1,12}(\d{1,12}) (?:tokens|runs)"
)
NS_PER_MS = 10**6
_READ = (
    _CONTEXT,
    _CACHE,
    _OLDER_CACHE,
    _SLOTS,
    _NAME,
    _FILE,
    _BUILD,
    _DEVICE,
    _WEIGHTS,
    _HOST,
    _PROMPT,
    _EVAL,
    _OFF,
)


class _Task:
    """A request, collected from its log lines."""

    def __init__(self, started_ns: int | None, prompt_tokens: int) -> None:
        self.started_ns = started_ns
        self.prompt_tokens = prompt_tokens
        self.computed = prompt_tokens
        self.output_tokens: int | None = None
        self.ended_ns: int | None = None
        self.decode_ns = 0

    def row(self, number: str) -> SourceRequest:
        """The request as a row, with its times if the log has them."""
        ended = self.ended_ns if self.started_ns is not None else None
        return SourceRequest(
            number,
            self.started_ns,
            self.prompt_tokens,
            self.output_tokens,
            None if ended is None else max(ended - self.decode_ns, self.started_ns or 0),
            ended,
            cached_tokens=max(self.prompt_tokens - self.computed, 0),
        )


class LlamaLog(Source):
    """Settings as the server derived them from its flags, and the requests that it answered."""

    rank = ENGINE_ITSELF
    what = "llama-server's log"
    gives = SERVER | STREAM | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the log by lines that only llama-server prints."""
        return source.may_be_log and source.holds(
            "llama_context: n_ctx",
            "llama_kv_cache: size =",
            "srv  update_slots:",
            "llama_new_context_with_model: n_ctx",
            "llama_kv_cache_init: ",
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Settings of the last model that was loaded, and all requests."""
        found: dict[str, Any] = {"engine": "llama.cpp"}
        cached = weights = 0.0
        for line in source.string().splitlines():
            context = _CONTEXT.search(line)
            if context:
                name, value = context.groups()
                cached = 0.0 if name == "n_seq_max" else cached
                _context(found, name, value)
            elif cache := _CACHE.search(line):
                cached += float(cache[1])
                found |= {"n_parallel": int(cache[3]), "kv_cache_dtype": cache_type(cache[5])}
            elif older := _OLDER_CACHE.search(line):
                if older[1]:
                    cached = float(older[1])
                    found["kv_cache_dtype"] = cache_type(older[2])
            elif slots := _SLOTS.search(line):
                found["n_parallel"] = int(slots[1] or slots[2])
            elif weight := _WEIGHTS.search(line):
                weights += float(weight[1])
            else:
                _about(found, line)
        if cached:
            found["kv_cache_bytes"] = round(cached * MIB)
        if weights:
            found["weights_gib"] = weights / 1024
        requests, notes = _requests(source)
        notes = (*notes, *left_lines(source.string().splitlines(), _READ, HARMLESS))
        settings = ServerSettings.parse(found, source.name)
        return Description(settings, requests=requests, notes=notes)


def _context(found: dict[str, Any], name: str, value: str) -> None:
    """Read a log line on the context length and slots into `found`."""
    if name == "kv_unified":
        found[name] = value == "true"
    elif value.isdecimal() and int(value):
        found["n_parallel" if name == "n_seq_max" else name] = int(value)


def _about(found: dict[str, Any], line: str) -> None:
    """Read a log line on the model, the device, or the host prompt cache into `found`."""
    if (file := _FILE.search(line)) and "model" not in found:
        found["model"] = model_name(file[1])
    elif name := _NAME.search(line):
        found["served_model_name"] = name[1].strip()
    elif build := _BUILD.search(line):
        found["engine_version"] = build[1]
    elif (device := _DEVICE.search(line)) and "gpu" not in found:
        found["gpu"] = device[1].removeprefix("NVIDIA ").removeprefix("GeForce ")
    elif host := _HOST.search(line):
        found["cache_ram"] = -1 if host[1] == "no limit" else int(host[1])
    elif _OFF.search(line):
        found["cache_ram"] = 0


def _requests(source: Sniffed) -> tuple[Requests | None, tuple[str, ...]]:
    """The requests that end within the log."""
    tasks: dict[str, _Task] = {}
    number, clock = "", None
    for line in source.string().splitlines():
        at = _CLOCK.match(line)
        if at:
            minutes, seconds, millis, micros = map(int, at.groups())
            clock = ((minutes * 60 + seconds) * 10**6 + millis * 1000 + micros) * 1000
        if task := _TASK.search(line):
            number = task[1]
        if prompt := _PROMPT.search(line):
            tasks[number] = _Task(clock, int(prompt[1]))
        elif spent := _EVAL.search(line):
            if spent[1]:
                if number not in tasks or tasks[number].output_tokens is not None:
                    number = f"{number}+{len(tasks)}"  # of older logs, which count no tasks
                    tasks[number] = _Task(None, int(spent[3]))
                tasks[number].computed = int(spent[3])
            elif number not in tasks:
                continue
            else:
                tasks[number].output_tokens = int(spent[3])
                tasks[number].decode_ns = round(float(spent[2]) * NS_PER_MS)
                tasks[number].ended_ns = clock
    rows = [task.row(name) for name, task in tasks.items() if task.output_tokens]
    notes = []
    if len(rows) < len(tasks):
        notes.append(f"{len(tasks) - len(rows)} requests without an end in the log are left out")
    if rows and all(row.arrival_ns is not None for row in rows):
        notes.append("a request arrives when a slot starts it: the log has no earlier time")
    return Requests.in_order(rows, "own"), tuple(notes)
