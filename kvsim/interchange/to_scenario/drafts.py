"""The table [speculative_config] for a server that sources describe."""

from typing import Any

from kvsim.engine.speculation.options import SpeculativeConfig
from kvsim.plumbing.errors import InputError
from kvsim.readers.description import ServerSettings

ACCEPTED = (
    *("acceptance_rate", "synthetic_acceptance_rates"),
    *("synthetic_acceptance_length", "acceptance_pattern"),
)
_UNKNOWN_RATE = 0.7
# vLLM's own names of heads that draft, which are one kind.
_HEADS = {"deepseek_mtp": "mtp", "qwen3_next_mtp": "mtp", "mimo_mtp": "mtp", "glm4_moe_mtp": "mtp"}


def speculation_of(
    settings: ServerSettings, assumed: list[str], notes: list[str]
) -> dict[str, Any] | None:
    """The table [speculative_config]; None without speculative decoding, or, with a note, if kvsim
    cannot simulate the method.
    """
    config = settings.speculative_config
    if not config:
        return None
    table = {
        key: config[key] for key in SpeculativeConfig.model_fields if config.get(key) is not None
    }
    method = table.get("method", "draft_model" if "model" in table else None)
    table["method"] = _HEADS.get(str(method), method)
    if not table.keys() & set(ACCEPTED):
        table["acceptance_rate"] = _UNKNOWN_RATE
    try:
        SpeculativeConfig.parse(table, "speculative_config")
    except InputError as fault:
        notes.append(f"speculative decoding is left out: {fault}")
        return None
    if "acceptance_rate" in table and "acceptance_rate" not in config:
        assumed.append(
            f"speculative_config.acceptance_rate = {_UNKNOWN_RATE}: no source says how many drafts "
            "are accepted"
        )
    left = sorted(config.keys() - table.keys())
    if left:
        notes.append(f"keys of speculative_config that are not read: {', '.join(left)}")
    return table
