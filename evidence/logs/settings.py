"""Parse a row's free text as settings: engine version, device, quantization of weights.

People write these freely ("V0, December 2024 (0.6.5)", "RTX PRO 6000 (96 GB)", "awq_marlin"). A
text that is not one version or one device is refused with the reason.
"""

import re
from typing import NamedTuple

from kvsim.device import Device, named_device, sized_device
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.vllm.versions import V0, VllmVersion, vllm_version

# The newest release at the middle of a month, for builds that name only their month.
RELEASES = dict(
    pair.split(":")
    for pair in [
        "2024-11:0.6",
        "2024-12:0.6",
        "2025-01:0.6",
        "2025-02:0.7",
        "2025-03:0.8",
        "2025-04:0.8",
        "2025-05:0.8",
        "2025-06:0.9",
        "2025-07:0.9",
        "2025-08:0.10",
        "2025-09:0.10",
        "2025-10:0.11",
        "2025-11:0.11",
        "2025-12:0.12",
        "2026-01:0.14",
        "2026-02:0.15",
        "2026-03:0.17",
        "2026-04:0.19",
        "2026-05:0.21",
        "2026-06:0.22",
        "2026-07:0.24",
        "2026-08:0.27",
        "2026-09:0.29",
        "2026-10:0.31",
        "2026-11:0.33",
    ]
)
# Devices that share the host's memory.
UNIFIED = ("gb10", "dgx-spark")
UNIFIED_WORDS = ("unified", "ryzen ai", "strix", "spark")
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
# In order: the first that is found in the cell decides. None: as the repository's config or name
# says.
SCHEMES: tuple[tuple[str, str | None], ...] = (
    (r"mxfp4", "mxfp4"),
    (r"nvfp4|\bfp4", "nvfp4"),
    (r"awq|gptq|auto.?round|int4|4.?bit|w4a16|bitsandbytes|bnb", "int4"),
    (r"w8a8|w8a16|int8|8.?bit", "int8"),
    (r"fp8", "fp8"),
    (r"compressed.?tensors|modelopt|quark|torchao|^auto$|^$", None),
    (r"none|bf16|bfloat16|fp16|float16|unquanti[sz]ed", "none"),
)
OTHER_ENGINES = ("fork", "lmdeploy", "llama.cpp")
# What a device's name may carry beside what tells it apart.
_BESIDE = re.compile(
    r"(sxm\d?|hbm\d?e?|pcie|oam|gpu|laptop|class|card|workstation|server|edition|blackwell|\d+gb)"
)
_RELEASE = re.compile(r"\b0\.(?!1\.dev)\d+(?:\.\d+)*(?:rc\d+)?")
_MONTH = re.compile(rf"({'|'.join(MONTHS)}) (\d{{4}})")
_GIB = re.compile(r"(?<![\d.])([\d.]+) GiB")
_GB = re.compile(r"\b(\d+) ?gb\b")
_SEVERAL = re.compile(r"^\s*\d+\s*x\s+")
# What a GPU shows of the memory it is sold with is less by up to a tenth.
SAME_MEMORY = 0.15
_GPU = re.compile(r"^(?:nvidia |amd |geforce )*", re.IGNORECASE)


class RefusalError(Exception):
    """A row that cannot be compared because of its own contents, not because of kvsim."""


class Notes(NamedTuple):
    """Settings in a row's notes; None if the notes do not give them.

    drafted: draft tokens per step of a multi-token prediction module. states: dtype of recurrent
    states. largest_graph: tokens of the largest CUDA graph. flashinfer: whether FlashInfer samples.
    """

    drafted: int | None
    prefix_caching: bool | None
    expert_parallel: bool
    states: str | None
    largest_graph: int | None
    flashinfer: bool | None


def read_version(text: str) -> VllmVersion:
    """Parse the version of vLLM; RefusalError for forks and for a text without a version."""
    lower = text.lower()
    if any(engine in lower for engine in OTHER_ENGINES):
        raise RefusalError(f"another engine: {text}")
    if lower.startswith("v0"):
        return V0
    if match := _RELEASE.search(text):
        return vllm_version(match[0])
    if match := _MONTH.search(lower):
        month = f"{match[2]}-{MONTHS.index(match[1]) + 1:02}"
        if month in RELEASES:
            return vllm_version(RELEASES[month])
    if match := re.search(r"early (\d{4})", lower):
        return vllm_version(RELEASES[f"{match[1]}-02"])
    raise RefusalError(f"the log does not name its version: {text or 'nothing'}")


def read_device(text: str) -> Device:
    """Parse the device; RefusalError if the log does not name one, or names one that shares the
    host's memory. A memory size in GiB in the text replaces the catalogue's.
    """
    lower = text.lower()
    total = _GIB.search(text)
    words = re.sub(r"\(.*?\)", " ", _GPU.sub("", text)).lower()
    plain = _SEVERAL.sub("", words).replace(",", " ").split()
    found = _listed(plain)
    if any(word in lower for word in UNIFIED_WORDS) or found in UNIFIED:
        raise RefusalError(
            f"its memory is the host's too, and the log does not give the host's use: {text}"
        )
    if total is not None:
        return sized_device(found or text, float(total[1]))
    written = None if _SEVERAL.match(words) else _GB.search(lower)
    if found is not None and written is not None:
        found = _of_size(found, plain, int(written[1]), text)
    if found is not None:
        return named_device(found)
    if "not named" in lower or not words.strip():
        raise RefusalError(f"the log does not name its GPU: {text or 'nothing'}")
    raise InputError("unknown device", where="gpu", value=repr(text))


def read_model(text: str) -> str:
    """The model's name; RefusalError if the log does not give one."""
    if not text or "not named" in text.lower():
        raise RefusalError(f"the log does not name its model: {text or 'nothing'}")
    return text


def read_kv_dtype(text: str) -> str:
    """`kv_cache_dtype` of [model]: the first word of the text."""
    words = re.sub(r"\(.*?\)", " ", text).lower().split()
    return words[0].rstrip(",;") if words else "auto"


def read_notes(text: str) -> Notes:
    """The settings among the notes."""
    lower = text.lower()
    drafted = re.search(r"\bmtp (\d+)", lower)
    caching = re.search(r"prefix caching (on|off)|prefix caching and .* (on|off)", lower)
    states = re.search(r"ssm cache (\w+)", lower)
    largest = re.search(r"max_cudagraph_capture_size=(\d+)", lower)
    flashinfer = re.search(r"flashinfer_sampler=(true|false)", lower)
    return Notes(
        drafted=None if drafted is None else int(drafted[1]),
        prefix_caching=None if caching is None else (caching[1] or caching[2]) == "on",
        expert_parallel="expert parallel" in lower,
        states=None if states is None else states[1],
        largest_graph=None if largest is None else int(largest[1]),
        flashinfer=None if flashinfer is None else flashinfer[1] == "true",
    )


def _listed(words: list[str]) -> str | None:
    """The catalogue's device for these words; words that do not distinguish devices are dropped one
    by one. None if there is none.
    """
    while words:
        for name in ("-".join(words), " ".join(words)):
            try:
                return named_device(name).name
            except InputError:
                continue
        if not _BESIDE.fullmatch(words[-1]):
            return None
        words = words[:-1]
    return None


def _of_size(found: str, words: list[str], gigabytes: int, text: str) -> str:
    """The variant of the device `found` with this much memory; RefusalError if there is none."""
    bare = [word for word in words if not _GB.fullmatch(word)]
    for name in (found, _listed([*bare, f"{gigabytes}gb"])):
        if name is not None:
            shown = named_device(name).memory_bytes / GIB
            if abs(shown / gigabytes - 1) <= SAME_MEMORY:
                return name
    raise RefusalError(f"the memory is not that of the GPU named: {text}")


def read_scheme(text: str) -> str | None:
    """`quantization` of [model]; None if the model's config or name decides."""
    lower = text.strip().lower()
    for pattern, scheme in SCHEMES:
        if re.search(pattern, lower):
            return scheme
    raise InputError("unknown quantization", where="quantization", value=repr(text))
