"""Quantisation schemes that checkpoints name, each as bits for a stored parameter.

By the forms of AWQ, GPTQ, AutoRound, compressed-tensors, ModelOpt, Quark, bitsandbytes and the
block formats, as vLLM 0.33 reads them (model_executor/layers/quantization).
"""

from collections.abc import Mapping
from typing import Any

from kvsim.model.hf.quantization.several import Share, by_kind
from kvsim.model.weights import DTYPE_BYTES, QUANTIZATIONS, WeightFormat
from kvsim.plumbing.errors import InputError

GROUPED = (
    *("awq", "gptq", "auto-round", "auto_round", "autoround", "awq_marlin", "gptq_marlin"),
    *("auto_awq", "auto_gptq", "inc", "moe_wna16"),
)
SYNONYMS = {
    "fbgemm_fp8": "fp8",
    "deepseek_v4_fp8": "fp8",
    "mxfp4_moe": "mxfp4",
    "gpt_oss_mxfp4": "mxfp4",
    "experts_int8": "int8",
}
MODELOPT = {
    "FP8": 8.0,
    "FP8_PER_CHANNEL_PER_TOKEN": 8.0,
    "FP8_PB_WO": 8.0,
    "MXFP8": 8 + 8 / 32,
    "NVFP4": QUANTIZATIONS["nvfp4"],
    "NVFP4_AWQ": QUANTIZATIONS["nvfp4"],
    "W4A16_NVFP4": QUANTIZATIONS["nvfp4"],
    "W4A8_AWQ": QUANTIZATIONS["int4"],
    "W4A16_AWQ": QUANTIZATIONS["int4"],
}
NAMED = {8.0: "fp8", QUANTIZATIONS["nvfp4"]: "nvfp4", QUANTIZATIONS["int4"]: "int4"}
QUARK_BITS = {"fp4": 4, "mxfp4": 4, "int4": 4, "uint4": 4, "fp8_e4m3": 8, "int8": 8}
MOST_BITS = 32


def stored(config: Mapping[str, Any], dtype: str, layers: int, where: str) -> WeightFormat:
    """The weight format of quantised modules. layers: number of layers of the model."""
    method = str(config.get("quant_method", "")).lower()
    method = SYNONYMS.get(method, method)
    at = f"{where}: quantization_config"
    if method in GROUPED:
        return _all(_grouped(config.get("bits") or 4, config.get("group_size"), at), dtype)
    if method == "compressed-tensors":
        return _compressed_tensors(config, dtype, layers, at)
    if method == "bitsandbytes":
        return WeightFormat.quantized("int4" if config.get("load_in_4bit") else "int8", dtype)
    if method.startswith("modelopt"):
        return _modelopt(config, dtype, layers, at)
    if method == "quark":
        return _all(_quark(config, at), dtype)
    if method not in QUANTIZATIONS:
        raise _unknown(method, at)
    return WeightFormat.quantized(method, dtype)


def _unknown(method: str, at: str) -> InputError:
    known = [*GROUPED, "bitsandbytes", "compressed-tensors", "modelopt", "quark", *QUANTIZATIONS]
    return InputError(
        "unknown quant_method",
        where=at,
        value=repr(method),
        limit=", ".join(known),
        remedy="drop the table and set quantization or weight_bytes_per_param in [model]",
    )


def _all(bits: float, dtype: str) -> WeightFormat:
    return WeightFormat(bits, bits, 8 * DTYPE_BYTES[dtype], NAMED.get(bits, ""))


def _grouped(bits: object, group_size: object, at: str) -> float:
    """Bits for a parameter with a float16 scale and a zero point of `bits` bits for each group
    along the input.
    """
    if not isinstance(bits, int | float) or not 1 <= bits <= MOST_BITS:
        raise InputError("not a number of bits", where=at, value=bits, limit=f"1 to {MOST_BITS}")
    size = group_size if isinstance(group_size, int) and group_size > 0 else 0
    return bits + ((16 + bits) / size if size else 0.0)


def _compressed_tensors(
    config: Mapping[str, Any], dtype: str, layers: int, at: str
) -> WeightFormat:
    groups: Mapping[str, Any] = config.get("config_groups") or {}
    shares = []
    for group in groups.values():
        if group:
            bits = _weights(group.get("weights") or {}, at)
            targets = group.get("targets") or ["Linear"]
            shares += [Share(str(target), bits) for target in targets]
    every = {share.bits for share in shares}
    if len(every) < 2:
        return _all(every.pop() if every else 16.0, dtype)
    return by_kind(shares, dtype, layers, at)


def _weights(table: Mapping[str, Any], at: str) -> float:
    bits, size = table.get("num_bits") or 16, table.get("group_size")
    if bits == 4 and table.get("type") == "float":
        return QUANTIZATIONS["mxfp4" if size == 32 else "nvfp4"]
    if bits == 8 and table.get("type") == "float" and size == 32:
        return MODELOPT["MXFP8"]
    return _grouped(bits, size, at) if bits < 16 else float(bits)


def _modelopt(config: Mapping[str, Any], dtype: str, layers: int, at: str) -> WeightFormat:
    inner = config.get("quantization") or {}
    algorithm = str(config.get("quant_algo") or inner.get("quant_algo") or "").upper()
    listed = config.get("quantized_layers") or inner.get("quantized_layers")
    if algorithm == "MIXED_PRECISION" and isinstance(listed, Mapping):
        shares = [
            Share(str(name), _algorithm(str(layer.get("quant_algo", "")).upper(), at))
            for name, layer in listed.items()
            if isinstance(layer, Mapping)
        ]
        return by_kind(shares, dtype, layers, at, listed=True)
    if not algorithm and config.get("config_groups"):
        return _compressed_tensors(config, dtype, layers, at)
    return _all(_algorithm(algorithm, at), dtype)


def _algorithm(name: str, at: str) -> float:
    if name not in MODELOPT:
        raise InputError(
            "unknown quant_algo",
            where=at,
            value=repr(name),
            limit=", ".join([*MODELOPT, "MIXED_PRECISION"]),
            remedy="drop the table and set quantization or weight_bytes_per_param in [model]",
        )
    return MODELOPT[name]


def _quark(config: Mapping[str, Any], at: str) -> float:
    """Bits under AMD's Quark: one table for all layers, else the first layer's table."""
    table = config.get("global_quant_config") or {}
    weight = table.get("weight") if isinstance(table, Mapping) else None
    weight = weight[0] if isinstance(weight, list) and weight else weight
    said = str((weight or {}).get("dtype", "")).lower() if isinstance(weight, Mapping) else ""
    if said not in QUARK_BITS or config.get("layer_quant_config"):
        raise InputError(
            "this table of Quark's is not understood",
            where=f"{at}: global_quant_config",
            value=repr(said),
            limit=f"one scheme for all of {', '.join(QUARK_BITS)}",
            remedy="drop the table and set quantization or weight_bytes_per_param in [model]",
        )
    bits, size = QUARK_BITS[said], (weight or {}).get("group_size")
    if said in ("fp4", "mxfp4"):
        return QUANTIZATIONS["mxfp4" if size in (32, None) else "nvfp4"]
    return _grouped(bits, size, at)
