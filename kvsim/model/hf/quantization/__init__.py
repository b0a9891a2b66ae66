"""The `quantization_config` of a config.json: bits of a stored parameter, and modules left
unquantised.

    one scheme for all, or one a kind of module   `schemes`, `several`
    modules that are not converted                here

A list of modules that are not converted is read for attention and recurrence, which some
checkpoints of mixtures leave unchanged. DeepSeek-V4 names the format of its experts separately.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvsim.model.hf.quantization.kinds import is_mixer
from kvsim.model.hf.quantization.schemes import stored
from kvsim.model.weights import DTYPE_BYTES, QUANTIZATIONS, WeightFormat
from kvsim.plumbing.errors import InputError

EXCLUDED = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "exclude")
_LAYER = re.compile(r"layers\.(\d+)\.")


def weight_format(config: Mapping[str, Any], dtype: str, layers: int, where: str) -> WeightFormat:
    """The weight format of a model with `layers` layers; InputError for an unknown quantisation
    method.
    """
    form = _with_experts(stored(config, dtype, layers, where), config, where)
    plain = 8 * DTYPE_BYTES[dtype]
    share = _share_left_out(config, layers)
    if not share or form.linear_bits == plain or form.mixer_bits is not None:
        return form
    bits = share * plain + (1 - share) * form.linear_bits
    return replace(form, mixer_bits=bits)


def _with_experts(form: WeightFormat, config: Mapping[str, Any], where: str) -> WeightFormat:
    """The format with routed experts in the `expert_dtype` that the config names."""
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


def _share_left_out(config: Mapping[str, Any], layers: int) -> float:
    """The share of layers with an unquantised mixer (attention or recurrence)."""
    lists = (config[key] for key in EXCLUDED if isinstance(config.get(key), list))
    listed: list[object] = next(lists, [])
    named = [str(name) for name in listed if is_mixer(str(name))]
    numbers = [_LAYER.search(name) for name in named]
    if any(number is None for number in numbers):
        return 1.0
    return min(1.0, len({number[1] for number in numbers if number}) / layers)
