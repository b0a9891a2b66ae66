"""vLLM's arguments in YAML: of `vllm serve --config`, and Helm values of production-stack."""

from typing import Any

from kvsim.readers.parsing.commands import number_or_text
from kvsim.readers.parsing.listed_words import listed_words
from kvsim.readers.parsing.yaml_lines import yaml_values
from kvsim.readers.vllm.args import KNOWN

_NAMES = {"model_url": "model", "model_tag": "model", "enable_lo_ra": "enable_lora"}
_NESTED = "speculative_config"


def yaml_arguments(text: str) -> dict[str, Any]:
    """VLLM's arguments by name; of several models the first."""
    found: dict[str, Any] = {}
    inside, nested = -1, {}  # the indentation of `speculative-config:`, and what stands below it
    for indent, key, value in yaml_values(text):
        key = _NAMES.get(key, key)
        if inside >= 0 and indent > inside:
            nested[key] = number_or_text(value) if isinstance(value, str) else value
            continue
        inside = -1
        if key == "model" and "model" in found:
            break
        if key == _NESTED and value is None:
            inside, nested = indent, found.setdefault(key, {})
        elif key in KNOWN and value is not None:
            found.setdefault(key, value)
    return found


def listed_flags(text: str) -> list[str]:
    """The words of `extraArgs:`."""
    return listed_words(text, "extraArgs")
