"""The `quantization_config` of a config.json: bits of a stored parameter, and what is left out.

By the forms of AWQ, GPTQ, AutoRound, compressed-tensors, ModelOpt, bitsandbytes and the block
formats; DeepSeek-V4 names that of its experts beside. A list of modules that are not converted
is read for attention and recurrence, which some checkpoints of mixtures leave as they were.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvsim.model.weights import DTYPE_BYTES, QUANTIZATIONS, WeightFormat
from kvsim.plumbing.errors import InputError

GROUPED = ("awq", "gptq", "auto-round", "auto_round", "autoround", "awq_marlin", "gptq_marlin")
SYNONYMS = {"fbgemm_fp8": "fp8", "mxfp4_moe": "mxfp4"}
MODELOPT = {"NVFP4": "nvfp4", "FP8": "fp8", "NVFP4_AWQ": "nvfp4", "W4A8_AWQ": "int4"}
EXCLUDED = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
# Projections of a mixer, or the whole of it, by the names checkpoints give them.
_MIXER = re.compile(
    r"(self_attn|linear_attn|attention|mamba|mixer)(\W*$|.*(qkv|[qo]_proj|out_proj))"
)
_LAYER = re.compile(r"layers\.(\d+)\.")


def weight_format(config: Mapping[str, Any], dtype: str, layers: int, where: str) -> WeightFormat:
    """The format of a model of so many layers; InputError names a method that is not known."""
    form = _with_experts(_stored(config, dtype, where), config, where)
    plain = 8 * DTYPE_BYTES[dtype]
    share = _share_left_out(config, layers)
    if not share or form.linear_bits == plain:
        return form
    bits = share * plain + (1 - share) * form.linear_bits
    return replace(form, mixer_bits=bits)


def _with_experts(form: WeightFormat, config: Mapping[str, Any], where: str) -> WeightFormat:
    """The format with routed experts in an `expert_dtype` of their own."""
    written = config.get("expert_dtype")
    if written is None or written == "fp8":
        return form
    if written != "fp4":
        raise InputError(
            "unknown expert_dtype",
            where=f"{where}: expert_dtype",
            value=repr(written),
            limit="fp4, fp8",
        )
    return replace(form, expert_bits=QUANTIZATIONS["mxfp4"])


def _stored(config: Mapping[str, Any], dtype: str, where: str) -> WeightFormat:
    method = str(config.get("quant_method", "")).lower()
    method = SYNONYMS.get(method, method)
    if method in GROUPED:
        return _grouped(config.get("bits") or 4, config.get("group_size"), dtype)
    if method == "compressed-tensors":
        groups: dict[str, Any] = config.get("config_groups") or {}
        group = next((g.get("weights") or {} for g in groups.values() if g), {})
        bits, size = group.get("num_bits") or 16, group.get("group_size")
        if bits == 4 and group.get("type") == "float":
            return WeightFormat.quantized("mxfp4" if size == 32 else "nvfp4", dtype)
        return _grouped(bits, size, dtype)
    if method == "bitsandbytes":
        return WeightFormat.quantized("int4" if config.get("load_in_4bit") else "int8", dtype)
    if method.startswith("modelopt"):
        inner = config.get("quantization") or {}
        algorithm = config.get("quant_algo") or inner.get("quant_algo") or ""
        method = MODELOPT.get(str(algorithm).upper(), method)
    if method not in QUANTIZATIONS:
        raise InputError(
            "unknown quant_method",
            where=f"{where}: quantization_config",
            value=repr(method),
            limit=", ".join([*GROUPED, "compressed-tensors", "modelopt", *QUANTIZATIONS]),
            remedy="drop the table and set quantization or weight_bytes_per_param in [model]",
        )
    return WeightFormat.quantized(method, dtype)


def _grouped(bits: int, group_size: int | None, dtype: str) -> WeightFormat:
    """A float16 scale and a zero point of `bits` bits for each group along the input."""
    overhead = (16 + bits) / group_size if group_size and group_size > 0 else 0.0
    return WeightFormat(bits + overhead, bits + overhead, 8 * DTYPE_BYTES[dtype])


def _share_left_out(config: Mapping[str, Any], layers: int) -> float:
    """The share of layers whose mixer is not converted."""
    lists = (config[key] for key in EXCLUDED if isinstance(config.get(key), list))
    listed: list[object] = next(lists, [])
    named = [str(name) for name in listed if _MIXER.search(str(name))]
    numbers = [_LAYER.search(name) for name in named]
    if any(number is None for number in numbers):
        return 1.0
    return min(1.0, len({number[1] for number in numbers if number}) / layers)
