"""How well the simulation follows a model's KV memory, by engine: "exact", approximately, or
"sized" (the size of the pool alone).

Exact: recorded schedules of that engine with the model's kinds of layers are equal row for row
(reports/schedules/README.md), and nothing below says otherwise.
"""

from typing import Literal, NamedTuple

from kvsim.capacity.sglang.sizing import STATE_KINDS, WINDOWED_KINDS
from kvsim.model import Model

Level = Literal["exact", "approximate", "sized"]
# Of SGLang 0.5.23 (arg_groups/overrides.py), by model_type: recurrent models with states that it
# tracks in buffers, and those it caches without them and runs without overlap.
TRACKED = (
    *("kimi_linear", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "falcon_h1"),
    *("granitemoehybrid", "nemotron_h"),
)
UNTRACKED = ("lfm2", "lfm2_moe")


class Coverage(NamedTuple):
    """How well one engine's memory is followed. level: as above; with "sized", `kvsim memory` gives
    the pool and no simulation runs. reason: why the level is not exact, else "".
    """

    level: Level
    reason: str = ""


EXACT = Coverage("exact")


def covered(model: Model) -> dict[str, Coverage]:
    """The coverage of `model` by engine: "vllm" (paged) and "sglang" (radix)."""
    return {"vllm": EXACT, "sglang": _by_sglang(model)}


def _by_sglang(model: Model) -> Coverage:
    layout = model.kv_layout()
    kinds = {group.kind for group in layout.groups}
    if layout.has_own_blocks:
        return Coverage("approximate", "a token keeps its windows and states: SGLang frees these")
    if kinds == {"recurrent"}:
        if model.kind in STATE_KINDS:
            return EXACT
        return Coverage("approximate", "SGLang 0.5.23 does not serve it")
    if "sliding" in kinds and "recurrent" in kinds:
        return Coverage("sized", "windows and states have two pools beside the pages")
    if "sliding" in kinds and model.kind not in WINDOWED_KINDS:
        return Coverage("exact", "SGLang keeps its windows whole")
    if "recurrent" in kinds and model.kind in UNTRACKED:
        return Coverage("approximate", "exact with disable_overlap_schedule = true, as SGLang sets")
    if "recurrent" in kinds and model.kind not in TRACKED:
        return Coverage("approximate", "SGLang 0.5.23 does not serve it")
    return EXACT
