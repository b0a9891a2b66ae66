"""Derive the base model and quantisation scheme from the name of a repository.

Quantised copies carry the scheme at the end of their name (`...-FP8-dynamic`, `...-quantized.w8a8`,
`...-AWQ`, `...-NVFP4`), fine-tuned copies a suffix such as `-Instruct`. This is only used if the
copy's own config.json is not available.
"""

import re
from collections.abc import Container
from typing import NamedTuple

# The scheme a part of a name stands for, as `quantization` of [model] writes it.
SCHEMES = {
    r"fp8(?:[-_.]?dyn(?:amic)?|[-_.]?block)?": "fp8",
    r"(?:quantized\.)?w8a8(?:-fp8|-int8)?": "int8",
    r"(?:quantized\.)?w8a16": "int8",
    r"(?:quantized\.)?w4a16(?:-g128)?": "int4",
    r"int8": "int8",
    r"gptq[-_]?int8": "int8",
    r"(?:awq|gptq|autoround|auto-round|bnb)?[-_]?(?:int4|4-?bit)": "int4",
    r"gptq[-_]?4b[-_]\d+g": "int4",
    r"awq(?:-marlin)?|gptq|autoround|auto-round": "int4",
    r"(?:nv)?fp4(?:-block)?": "nvfp4",
    r"mxfp4": "mxfp4",
}
TUNED = r"unsloth|instruct|it|chat|hf|base|thinking|reasoning|preview|pt|\d{4}"


class Named(NamedTuple):
    """A parsed name. base: a known name; quantization: how weights are stored, None: as in the
    base.
    """

    base: str
    quantization: str | None


def read_name(name: str, known: Container[str]) -> Named | None:
    """The known model that a repository's name refers to; None without one.

    known: lower-case names without an organisation.
    """
    rest = re.sub(r"\(.*?\)", " ", name.strip().lower().rpartition("/")[2])
    rest = re.sub(r"[\s_]+", "-", rest.strip())
    scheme: str | None = None
    while rest not in known:
        shorter = None
        for form, found in SCHEMES.items():
            if match := re.fullmatch(rf"(.+?)[-_.]({form})", rest):
                shorter, scheme = match[1], scheme or found
                break
        if shorter is None and (match := re.fullmatch(rf"(.+?)[-_](?:{TUNED})", rest)):
            shorter = match[1]
        if shorter is None:
            return None
        rest = shorter
    return Named(rest, scheme)
