"""A model by the name a user writes: built in, fetched, or read off the name of a copy."""

from dataclasses import replace

from kvsim.model.catalogue import known_names, model_like, named_model
from kvsim.model.model import Model
from kvsim.model.names import read_name
from kvsim.model.repository import fetch_config, is_repository
from kvsim.model.weights import WeightFormat
from kvsim.plumbing.errors import InputError


def find_model(name: str, where: str = "model.name", *, offline: bool = False) -> Model:
    """The model of this name, in this order: a built-in name or id; the repository's own
    config.json, from the cache or fetched (`offline`: from the cache alone); the built-in model
    that the name says it is a copy of, with the quantisation it names. The model's source says
    which. Raises InputError if none leads anywhere.
    """
    if name.strip().lower() in known_names():
        return named_model(name, where)
    missing = "no repository of that form"
    if is_repository(name):
        try:
            path = fetch_config(name, offline=offline)
        except InputError as error:
            missing = error.what
        else:
            source = f"config.json of {name} on Hugging Face"
            return replace(Model.from_hf(path, name), source=source)
    copy = read_name(name, known_names())
    if copy is None:
        raise unknown(name, where, missing)
    model = named_model(copy.base, where)
    if copy.quantization is not None:
        form = WeightFormat.quantized(copy.quantization, model.torch_dtype)
        model = replace(model, weight_format=form)
    stored = f", weights as {copy.quantization}" if copy.quantization else ""
    return replace(model, name=name, source=f"{model.source}, by the name of the copy{stored}")


def unknown(name: str, where: str, missing: str) -> InputError:
    """No model of this name: `missing` says why nothing was fetched."""
    return InputError(
        "unknown model",
        where=where,
        value=repr(name),
        remedy=f"{model_like(name)} ({missing}). Or give the path of its config.json",
    )
