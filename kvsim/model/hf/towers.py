"""Encoder towers of a text decoder: their parameters, and Qwen-VL's widths.

A transformer over patches has four attention matrices and two or three feed-forward ones a layer. A
conformer over sound (Gemma 3n and 4) has two feed-forward parts, two attentions' worth of
projections and a convolution, 24 squares of its width. The projector to the decoder is counted by
its usual form, two matrices. Towers stay in the model's dtype when the decoder is quantised.
"""

from collections.abc import Mapping
from typing import Any

from kvsim.model.tower import Tower, Vision

VISION = ("vision_config", "vit_config", "vision_tower_config")
AUDIO = ("audio_config", "sound_config")
# Convolutional towers that their config names instead of describing.
NAMED = {"mobilenetv5_300m_enc": 300_000_000}
GATED_KINDS = ("pixtral", "qwen2_5_vl", "mistral3", "siglip2_vision_model")
# The processors of these models make images of up to 2^24 pixels in patches of 16, or 16,384 * 28^2
# in patches of 14: as many tokens either way. A patch has the pixels of two frames.
QWEN_KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")
QWEN_TOKENS, QWEN_FRAMES = 16_384, 2
# GLM-4V's blocks are as wide inside as the decoder's hidden state, its projector as their own key
# says.
GLM_KINDS = ("glm4v", "glm4v_vision", "glm4v_moe", "glm4v_moe_vision")


def tower_params(config: Mapping[str, Any], hidden: int) -> int:
    """Number of parameters of each encoder tower in the config. hidden: hidden size of the text
    decoder.
    """
    thinker = config.get("thinker_config")
    table = thinker if isinstance(thinker, Mapping) else config
    total = 0
    for names, count in ((VISION, _vision), (AUDIO, _audio)):
        tower = _table(table, names)
        if tower is not None:
            total += count(tower, hidden)
    return total


def vision(config: Mapping[str, Any]) -> Vision | None:
    """The vision tower, from vision_config alone; None without one."""
    table = config.get("vision_config")
    if not isinstance(table, Mapping):
        return None
    layers, width = (table.get(key) for key in ("num_hidden_layers", "hidden_size"))
    return Vision(
        layers if isinstance(layers, int) else 24, width if isinstance(width, int) else 1024
    )


def qwen_tower(config: Mapping[str, Any], kind: str) -> Tower | None:
    """The vision tower of a Qwen model with a text decoder of `kind`; None for other models."""
    table = _table(config, VISION)
    if table is None or not kind.startswith(QWEN_KINDS):
        return None
    width, inner = _widths(table)
    midway = table.get("deepstack_visual_indexes")
    return Tower(
        patch_elements=3 * QWEN_FRAMES * (_first(table, "patch_size") or 14) ** 2,
        width=width,
        inner=inner,
        gated=table.get("model_type") in GATED_KINDS,
        learned_positions=kind.startswith("qwen3"),
        merged_patches=(_first(table, "spatial_merge_size") or 2) ** 2,
        midway_layers=len(midway) if isinstance(midway, list) else 0,
        largest_tokens=QWEN_TOKENS,
    )


def _table(config: Mapping[str, Any], names: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The table under the first of `names` that the config has."""
    return next((config[name] for name in names if isinstance(config.get(name), Mapping)), None)


def _widths(tower: Mapping[str, Any]) -> tuple[int, int]:
    """(hidden size, feed-forward width) of a tower."""
    width = _first(tower, "hidden_size", "embed_dim", "width")
    if tower.get("embed_dim") is not None:  # Qwen2-VL's hidden_size is the decoder's
        width = _first(tower, "embed_dim")
    inner = _first(tower, "intermediate_size", "mlp_dim")
    if not inner:
        ratio = tower.get("mlp_ratio", 4)
        inner = int(width * ratio) if isinstance(ratio, int | float) else 4 * width
    return width, inner


def _first(tower: Mapping[str, Any], *names: str) -> int:
    """The first value of `names` that is an integer, or the first entry of a list; 0: none."""
    for name in names:
        value = tower.get(name)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, int):
            return value
    return 0


def _vision(tower: Mapping[str, Any], hidden: int) -> int:
    if tower.get("architecture") in NAMED:
        return NAMED[str(tower["architecture"])]
    width, inner = _widths(tower)
    layers = _first(tower, "num_hidden_layers", "depth", "layers", "num_layers")
    if tower.get("model_type") in GLM_KINDS:
        return _glm(tower, width, layers, inner, hidden)
    gated = tower.get("model_type") in GATED_KINDS
    patch = _first(tower, "patch_size") or 14
    merged = width * (_first(tower, "spatial_merge_size", "merge_kernel_size") or 1) ** 2
    projector = merged * merged + merged * hidden if merged > width else (width + hidden) * hidden
    # Qwen3-VL hands states of layers midway to the decoder too, each through a projector.
    midway = tower.get("deepstack_visual_indexes")
    projector *= 1 + (len(midway) if isinstance(midway, list) else 0)
    return layers * (4 * width**2 + (2 + gated) * width * inner) + 3 * patch**2 * width + projector


def _glm(tower: Mapping[str, Any], width: int, layers: int, inner: int, hidden: int) -> int:
    patch, merge = _first(tower, "patch_size") or 14, _first(tower, "spatial_merge_size") or 2
    projector = hidden * (3 * inner + hidden + width * merge**2)
    return layers * (4 * width**2 + 3 * width * hidden) + 6 * patch**2 * width + projector


def _audio(tower: Mapping[str, Any], hidden: int) -> int:
    width = _first(tower, "hidden_size", "d_model")
    conformer = _first(tower, "conf_num_hidden_layers", "num_hidden_layers")
    layers = conformer or _first(tower, "encoder_layers")
    squares = 24 if conformer else 12
    return layers * squares * width**2 + width * hidden
