"""Convert llama-server's flags to settings."""

import re
from collections.abc import Callable
from typing import Any

from kvsim.model.kv_formats import FORMATS
from kvsim.plumbing.counts import whole
from kvsim.plumbing.errors import InputError
from kvsim.readers.vllm.args import fraction, text, truth

_FILE = re.compile(r"(-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE)
_QUANT = re.compile(r"[-._](UD-)?(I?Q\d\w{0,12}|B?F16|F32|MXFP4\w{0,12})$", re.IGNORECASE)
_TYPES = {"f16": "fp16", "f32": "fp32", "bf16": "bf16"}


def model_name(value: str) -> str:
    """The model's name from that of a GGUF file or repository, without the quantization suffix."""
    name = re.sub(r"-GGUF$", "", value.partition(":")[0] or value, flags=re.IGNORECASE)
    return _QUANT.sub("", _FILE.sub("", name))


def cache_type(value: str) -> str:
    """The name in kvsim of a K or V cache type; ValueError for a type that llama.cpp lacks."""
    name = _TYPES.get(value.lower(), value.lower())
    if name not in FORMATS:
        raise ValueError(value)
    return name


def _count(value: str) -> int | None:
    """A positive count; None for 0 or less, which means the model's own value."""
    return int(value) if int(value) > 0 else None


KNOWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "model": ("model", model_name),
    "hf_repo": ("model", model_name),
    "alias": ("served_model_name", text),
    "ctx_size": ("n_ctx", _count),
    "parallel": ("n_parallel", _count),
    "kv_unified": ("kv_unified", truth),
    "batch_size": ("n_batch", whole),
    "ubatch_size": ("n_ubatch", whole),
    "cache_type_k": ("kv_cache_dtype", cache_type),
    "swa_full": ("swa_full", truth),
    "cache_ram": ("cache_ram", lambda value: max(-1, int(value))),
    "cache_reuse": ("cache_reuse", int),
    "cache_idle_slots": ("cache_idle_slots", truth),
    "context_shift": ("context_shift", truth),
    "ctx_checkpoints": ("ctx_checkpoints", int),
    "slot_prompt_similarity": ("slot_prompt_similarity", fraction),
    "cache_type_v": ("", cache_type),
    **dict.fromkeys(("n_gpu_layers", "model_draft", "lora", "mmproj", "split_mode"), ("", text)),
}
SWITCHES = frozenset(("kv_unified", "swa_full", "context_shift", "cache_idle_slots"))
SHORT = {
    "-m": "model",
    "-hf": "hf_repo",
    "-hfr": "hf_repo",
    "-a": "alias",
    "-c": "ctx_size",
    "-np": "parallel",
    "-b": "batch_size",
    "-ub": "ubatch_size",
    "-kvu": "kv_unified",
    "-no-kvu": "no_kv_unified",
    "-ctk": "cache_type_k",
    "-ctv": "cache_type_v",
    "-cram": "cache_ram",
    "-sps": "slot_prompt_similarity",
    "-ctxcp": "ctx_checkpoints",
    "--swa-checkpoints": "ctx_checkpoints",
    "-ngl": "n_gpu_layers",
    "-md": "model_draft",
    "--gpu-layers": "n_gpu_layers",
    "-sm": "split_mode",
    "-mm": "mmproj",
}


def take(pairs: dict[str, Any], where: str) -> dict[str, Any]:
    """Convert flags to settings; InputError for an invalid value."""
    found: dict[str, Any] = {}
    for name, value in pairs.items():
        setting, read = KNOWN[name]
        try:
            known = read(value)
        except (TypeError, ValueError):
            raise InputError("no value of it", where=f"{where}: {name}", value=value) from None
        if setting and known is not None:
            found[setting] = known
    return found


def left_out_notes(pairs: dict[str, Any]) -> list[str]:
    """Notes on flags that ask for features that are not simulated."""
    notes = []
    keys, values = (pairs.get(f"cache_type_{part}", "f16") for part in "kv")
    if keys != values:
        notes.append(f"K is {keys} and V is {values}: kvsim keeps both as {keys}")
    if pairs.get("n_gpu_layers", "all") not in ("all", "auto", "-1") and (
        int(pairs["n_gpu_layers"]) < 99 if pairs["n_gpu_layers"].isdecimal() else True
    ):
        notes.append(f"n_gpu_layers {pairs['n_gpu_layers']}: kvsim keeps all layers on the GPU")
    asked = [name for name in ("model_draft", "lora", "mmproj", "split_mode") if name in pairs]
    return [*notes, f"not simulated: {', '.join(asked)}"] if asked else notes
