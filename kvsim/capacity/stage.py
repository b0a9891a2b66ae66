"""A stage of a pipeline: the layers one group of GPUs holds, with the embedding or the head.

vLLM deals the layers out evenly and gives each left over one to a stage before the last.
VLLM_PP_LAYER_PARTITION overrides how many each has (distributed/utils.py `get_pp_indices`).
"""

from dataclasses import replace
from typing import NamedTuple

from kvsim.model import Layer, Model
from kvsim.plumbing.errors import InputError


class Stage(NamedTuple):
    """A stage's layers, in order; first, last: it has the embedding, the head. start: index of its
    first layer in the model.
    """

    layers: tuple[Layer, ...]
    first: bool
    last: bool
    start: int = 0


def model_of(model: Model, stage: Stage) -> Model:
    """The part of a model that a stage computes. Only the last stage has the vocabulary's head."""
    return replace(model, layers=stage.layers, vocab_size=model.vocab_size if stage.last else 0)


def stages(
    layers: tuple[Layer, ...], count: int, given: tuple[int, ...] | None = None
) -> list[Stage]:
    """The stages of a pipeline of `count`, each with at least one layer. given: layers of each;
    InputError if these are not all layers.
    """
    sizes = [len(layers) // count] * count
    for left_over in range(len(layers) % count):
        sizes[-2 - left_over] += 1
    if given is not None:
        sizes = list(given)
    if sum(sizes) != len(layers):
        raise InputError(
            "the stages do not have all layers of the model",
            where="model.pp_layer_partition",
            value=f"{sum(sizes)} layers",
            limit=len(layers),
        )
    starts = [sum(sizes[:index]) for index in range(count)]
    return [
        Stage(layers[start : start + size], index == 0, index == count - 1, start)
        for index, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]
