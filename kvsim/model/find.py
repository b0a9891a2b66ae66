"""Find a model by name: built in, fetched from a repository, or derived from the name of a copy."""

import re
from dataclasses import replace
from pathlib import Path

from kvsim.model.catalogue import (
    check_understood,
    is_built_in,
    known_names,
    model_like,
    named_model,
)
from kvsim.model.layers import Recurrence
from kvsim.model.model import Model
from kvsim.model.weights import WeightFormat
from kvsim.plumbing.errors import InputError

# As a part of its own: a folder may be called anything.
_GGUF = r"(^|[-_./])gguf($|[-_.:])|\.gguf"
# LLM Compressor's recipes for FP8 name their copies so.
_DYNAMIC = r"fp8[-_.]?dyn"
# Who publishes copies made by LLM Compressor; and models that ModelOpt converts in mixed bits.
_COMPRESSOR = r"redhatai/"
_MIXED = r"(^|/)qwen3\.[68]-"


def find_model(name: str, where: str = "model.name", *, offline: bool = False) -> Model:
    """The model of this name.

    A built-in name or id is tried first, then the repository's config.json, from the cache or
    fetched (`offline`: only from the cache). Last is the built-in model of which the name says it
    is a copy, with the quantisation in the name. The model's `source` says which was used. Raises
    InputError if none is found.
    """
    if is_built_in(name):
        return named_model(name, where)
    # Most models are built in, and a short run is mostly imports.
    from kvsim.model.checkpoint.find import of_repository
    from kvsim.model.hf.config_file import fields_from_hf
    from kvsim.model.names import read_name
    from kvsim.model.repository import fetch_config, is_repository

    if _is(_GGUF, name):
        raise InputError(
            "GGUF files are not read",
            where=where,
            value=repr(name),
            remedy="name the model it was made from, and weight_bytes_per_param",
        )
    check_understood(name, where)
    missing = ""
    if is_repository(name):
        try:
            path = fetch_config(name, offline=offline)
        except InputError as error:
            missing = error.what
        else:
            model = Model(**fields_from_hf(path, name))
            model = replace(model, source=f"config.json of {name} on Hugging Face")
            tensors, why = of_repository(name, path, offline=offline)
            guessed = replace(model, source=f"{model.source}, weights by rule ({why})")
            return model.with_tensors(tensors) if tensors else guessed
    copy = read_name(name, known_names())
    if copy is None:
        raise unknown(name, where, missing)
    model = named_model(copy.base, where)
    if copy.quantization is not None:
        model = replace(model, weight_format=_as_published(model, copy.quantization, name))
    stored = f", weights as {copy.quantization}" if copy.quantization else ""
    return replace(model, name=name, source=f"{model.source}, by the name of the copy{stored}")


def _is(pattern: str, name: str) -> bool:
    """Whether the regular expression `pattern` occurs in `name`, ignoring case."""
    return re.search(pattern, name, re.IGNORECASE) is not None


def _as_published(model: Model, scheme: str, name: str) -> WeightFormat:
    """The weight format of a quantised copy in `scheme`. The NVFP4 recipes of ModelOpt and LLM
    Compressor, and the FP8 recipe of the latter, leave recurrence in the model's dtype. Qwen's own
    FP8 converts its projections too: Qwen3.8-27B-FP8 takes 14.28 GiB on each of two GPUs
    (github.com/vllm-project/recipes/pull/810).

    ModelOpt's mixed recipe for Qwen3.6 and 3.8 has 4 bits in feed-forward parts and the head, and 8
    in attention and recurrence (github.com/Avarok-Cybersecurity/atlas/pull/121). With a drafting
    layer in 16 bits this makes 21.9 GB of Qwen3.6-27B and 23.3 of Qwen3.6-35B-A3B; 21.9 and 23.4
    are published (github.com/noonghunna/club-3090).
    """
    form = WeightFormat.quantized(scheme, model.torch_dtype)
    if scheme == "nvfp4" and _is(_MIXED, name) and not re.match(_COMPRESSOR, name, re.IGNORECASE):
        return replace(form, mixer_bits=8.0, head_bits=form.linear_bits)
    if scheme != "nvfp4" and not (scheme == "fp8" and _is(_DYNAMIC, name)):
        return form
    mixers = [(layer.mixer, layer.mixer.weights(model.hidden_size, 1)) for layer in model.layers]
    every = sum(weights.linear for _, weights in mixers)
    recurrent = sum(weights.linear for mixer, weights in mixers if isinstance(mixer, Recurrence))
    if not recurrent:
        return form
    share = recurrent / every
    bits = share * form.other_bits + (1 - share) * form.linear_bits
    return replace(form, mixer_bits=bits)


def unknown(name: str, where: str, missing: str) -> InputError:
    """The error for an unknown model name. missing: why its repository was not fetched; "" if the
    name is not a repository's.
    """
    why = f" ({missing})." if missing else ""
    return InputError(
        "unknown model",
        where=where,
        value=repr(name),
        remedy=f"{model_like(name)}{why} Or give the path of its config.json",
    )


def is_of_file(name: str) -> bool:
    """Whether a model's name is the path of a config.json, or of a folder that contains one."""
    return Path(name).suffix == ".json" or Path(name).is_dir()
