"""Ollama's environment variables: in shell exports, a systemd unit, a manifest, or a line of
Ollama's log.
"""

import re
from typing import Any

from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.llamacpp.args import take
from kvsim.readers.reader import ASKED_FOR, SERVER, Sniffed, Source

OLLAMA_CONTEXT = 4096  # tokens of a request, where OLLAMA_CONTEXT_LENGTH says nothing
_VARIABLE = re.compile(
    r"\bOLLAMA_(NUM_PARALLEL|CONTEXT_LENGTH|KV_CACHE_TYPE)[\"']?[ \t]{0,4}[=:][ \t]{0,4}[\"']?"
    r"([\w.+-]+)"
)
_ANY = re.compile(r"\bOLLAMA_\w+")
_READ = ("NUM_PARALLEL", "KV_CACHE_TYPE", "CONTEXT_LENGTH")
_HARMLESS = frozenset(
    f"OLLAMA_{name}"
    for name in ("HOST", "ORIGINS", "MODELS", "DEBUG", "KEEP_ALIVE", "NOHISTORY", "NOPRUNE")
)
_RUN = re.compile(r"\bollama run ([\w./:-]+)")


class OllamaEnvironment(Source):
    """The variables OLLAMA_NUM_PARALLEL, OLLAMA_CONTEXT_LENGTH and OLLAMA_KV_CACHE_TYPE."""

    rank = ASKED_FOR
    what = "Ollama's environment"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the text by these variables, unless it also has llama-server's log."""
        return (
            source.document is None
            and not source.holds("llama_context:")
            and _VARIABLE.search(source.text) is not None
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The settings that Ollama gives to llama-server: one context buffer per
        parallel request.
        """
        whole = "\n".join(
            line for line in source.string().splitlines() if not line.lstrip().startswith("#")
        )
        said = dict(_VARIABLE.findall(whole))
        pairs: dict[str, Any] = {"parallel": said.get("NUM_PARALLEL", "0")}
        if said.get("KV_CACHE_TYPE"):
            pairs["cache_type_k"] = said["KV_CACHE_TYPE"]
        pairs["ctx_size"] = said.get("CONTEXT_LENGTH", "0")
        found = take(pairs, source.name)
        found["n_parallel"] = found.get("n_parallel", 1)
        found["n_ctx"] = found.get("n_ctx", OLLAMA_CONTEXT) * found["n_parallel"]
        found |= {"engine": "llama.cpp", "kv_unified": False}
        model = _RUN.search(whole)
        if model:
            found["model"] = model[1].replace(":", "-")
        notes = ["Ollama serves by a llama-server of its own, with a buffer for each request"]
        named = set(_ANY.findall(whole)) - {f"OLLAMA_{name}" for name in _READ} - _HARMLESS
        if named:
            notes.append(f"variables that are not read: {', '.join(sorted(named))}")
        return Description(ServerSettings.parse(found, source.name), notes=tuple(notes))
