"""Sizes of a vision tower that determine its working memory."""

from dataclasses import dataclass
from typing import NamedTuple


class Vision(NamedTuple):
    """A vision tower as SGLang's default memory share reads it: num_hidden_layers and hidden_size
    of its config, or the usual ones if these names are missing.
    """

    layers: int
    width: int


@dataclass(frozen=True, slots=True)
class Tower:
    """A transformer over the patches of an image (vLLM: models/qwen2_vl.py, qwen2_5_vl.py,
    qwen3_vl.py).

    patch_elements: pixel values of a patch. width, inner: hidden size, and width of the
    feed-forward part; gated: that part has two matrices of width `inner`. learned_positions: a
    table of positions is added to the patches. merged_patches: number of patches that become one
    token. midway_layers: layers with states that the decoder also reads. largest_tokens: tokens of
    the largest image that its processor makes.
    """

    patch_elements: int
    width: int
    inner: int
    gated: bool
    learned_positions: bool
    merged_patches: int
    midway_layers: int
    largest_tokens: int
