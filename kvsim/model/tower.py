"""A vision tower in the widths that its working memory follows from."""

from dataclasses import dataclass
from typing import NamedTuple


class Vision(NamedTuple):
    """A tower with the sizes that SGLang's default share reads: num_hidden_layers and hidden_size
    of its config, or the usual ones if these names are missing.
    """

    layers: int
    width: int


@dataclass(frozen=True, slots=True)
class Tower:
    """A transformer over the patches of an image (vLLM: models/qwen2_vl.py, qwen2_5_vl.py,
    qwen3_vl.py).

    patch_elements: values of a patch's pixels. width, inner: elements of a patch between layers,
    and within a feed-forward part; gated: that has two matrices of this width. learned_positions: a
    table of positions is added to the patches. merged_patches: that become one token.
    midway_layers: layers with states that are handed to the decoder too. largest_tokens: of the
    largest image that its processor makes.
    """

    patch_elements: int
    width: int
    inner: int
    gated: bool
    learned_positions: bool
    merged_patches: int
    midway_layers: int
    largest_tokens: int
