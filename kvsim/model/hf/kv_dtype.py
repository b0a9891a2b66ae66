"""The KV cache dtype that a quantised checkpoint asks for, used where the user says "auto"."""

from collections.abc import Mapping
from typing import Any

# kv_cache_quant_algo of ModelOpt; the engine knows no other.
ALGORITHMS = {"fp8": "fp8", "nvfp4": "nvfp4"}
AUTO = "auto"


def stored_kv_dtype(quantization: Mapping[str, Any]) -> str:
    """The dtype that this quantization_config implies; "auto" if it implies none that is known.

    ModelOpt names an algorithm or a scheme; any scheme of compressed-tensors is served in fp8.
    """
    method = str(quantization.get("quant_method", "")).lower()
    if method == "compressed-tensors":
        return "fp8" if quantization.get("kv_cache_scheme") else AUTO
    if not method.startswith("modelopt"):
        return AUTO
    inner = quantization.get("quantization")
    tables = [inner, quantization] if isinstance(inner, Mapping) else [quantization]
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        said = next((table[key] for table in tables if table.get(key)), None)
        if isinstance(said, Mapping):
            return _of_scheme(said)
        if said is not None:
            return ALGORITHMS.get(str(said).lower(), AUTO)
    return AUTO


def _of_scheme(scheme: Mapping[str, Any]) -> str:
    if scheme.get("type") != "float":
        return AUTO
    if scheme.get("num_bits") == 4:
        return "nvfp4"
    return "fp8" if scheme.get("num_bits") == 8 and scheme.get("dynamic") is False else AUTO
