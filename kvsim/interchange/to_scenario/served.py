"""The served model and its device, under the names that a scenario uses."""

from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.device import device_names, named_device
from kvsim.model import Model, ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.readers.description import ServerSettings

_MODEL_KEYS = (
    *("decode_context_parallel_size", "enable_expert_parallel", "mamba_ssm_cache_dtype"),
    "language_model_only",
)
_SAME_MEMORY = 1e-3  # between what a log says of a device and what the catalogue does


class ServedModel(NamedTuple):
    """The served model. table is the table [model]. options and model are built from it; None if
    kvsim does not know the model.
    """

    table: dict[str, Any]
    options: ModelOptions | None
    model: Model | None


def served_device(settings: ServerSettings, assumed: list[str]) -> str:
    """The device's name in the catalogue; InputError if no source gives the device."""
    if settings.gpu is not None:
        return named_device(settings.gpu, "--device").name
    memory = settings.gpu_memory_gib
    fitting = [
        name
        for name in device_names()
        if memory is not None
        and isclose(named_device(name).memory_bytes, memory * GIB, rel_tol=_SAME_MEMORY)
    ]
    if len(fitting) == 1:
        assumed.append(f"device = {fitting[0]}: of all in the catalogue it has {memory:g} GiB")
        return fitting[0]
    raise InputError(
        "no source names the device",
        where="[device]",
        value=f"{memory:g} GiB: {', '.join(fitting) or 'none in the catalogue'}"
        if memory
        else None,
        remedy="give --device",
    )


def served_model(settings: ServerSettings, assumed: list[str]) -> ServedModel:
    """The model; InputError if no source gives it, or for a setting that the model cannot have.

    Assumptions are appended to `assumed`.
    """
    name = settings.model or settings.served_model_name
    if name is None:
        raise InputError("no source names the model", where="[model]", remedy="give --model")
    if settings.model is None:
        assumed.append(f"model = {name}: the name it is served under")
    table: dict[str, Any] = {"tensor_parallel_size": settings.tensor_parallel_size or 1}
    if settings.kv_cache_dtype is not None:
        table["kv_cache_dtype"] = settings.kv_cache_dtype
    for key in _MODEL_KEYS:
        value = getattr(settings, key)
        if value is not None:
            table[key] = value
    if settings.quantization is not None:
        table["quantization"] = settings.quantization
    if (Path(name) / "config.json").is_file():
        choices: list[dict[str, Any]] = [{"hf_config": name}]
    else:
        choices = [{"name": each} for each in _names(name)]
    for choice in choices:
        try:
            known = ModelOptions.parse(choice, "model")
            whole = known.build(offline=True)
            known.layout(whole)
        except InputError:
            continue
        if table.get("language_model_only") and not whole.tower_params:
            del table["language_model_only"]
            assumed.append("language_model_only changes nothing: the model has no towers")
        options = ModelOptions.parse(choice | table, "model")  # a fault is the settings' own
        model = options.build(offline=True)
        options.layout(model)
        called = choice.get("name")
        if called is not None and called != name:
            assumed.append(f"model = {called}: by the path {name}")
        table |= _dtype(settings, model) | {"max_model_len": _longest(settings, model, assumed)}
        if model.is_sparse and _ranks_share_experts(settings):
            table["data_parallel_size"] = settings.data_parallel_size
        elif settings.attention_dp_size is not None:
            copies = settings.attention_dp_size
            assumed.append(f"attn_dp_size = {copies}: each copy is taken to hold all weights")
        return ServedModel(choice | table, ModelOptions.parse(choice | table, "[model]"), model)
    assumed.append(
        f"model {name}: not known here; its layers are assumed to be equal (kvsim run needs its "
        "config.json: model.hf_config)"
    )
    return ServedModel({"name": name} | table | _dtype(settings, None), None, None)


def _dtype(settings: ServerSettings, model: Model | None) -> dict[str, Any]:
    """{"dtype": ...} if the weights' type differs from the model's own, else {}."""
    if settings.dtype is None or (model is not None and model.torch_dtype == settings.dtype):
        return {}
    return {"dtype": settings.dtype}


def _ranks_share_experts(settings: ServerSettings) -> bool:
    """Whether the server has several ranks, with experts spread over all GPUs.

    Under vLLM this holds for any data parallelism, under SGLang only for data-parallel attention.
    """
    if settings.engine == "sglang":
        return settings.attention_dp_size is not None
    return (settings.data_parallel_size or 1) > 1 and settings.engine in (None, "vllm")


def _names(name: str) -> list[str]:
    """Possible ids of a model: the name as given, and the last parts of a path or a
    cache folder.
    """
    parts = [part for part in name.rstrip("/").split("/") if part]
    cached = next((part for part in parts if part.startswith("models--")), None)
    found = [name]
    if cached is not None:
        found.append(cached.removeprefix("models--").replace("--", "/"))
    if "--" in parts[-1]:
        found.append(parts[-1].replace("--", "/"))
    if len(parts) > 2:
        found.append("/".join(parts[-2:]))
    found.append(parts[-1])
    return list(dict.fromkeys(found))


def _longest(settings: ServerSettings, model: Model, assumed: list[str]) -> int:
    """max_model_len, limited to the model's number of positions."""
    longest = model.max_position_embeddings
    if settings.max_model_len is None:
        assumed.append(f"max_model_len = {longest}: the model's own maximum")
    elif settings.max_model_len > longest:
        assumed.append(f"max_model_len = {longest}: what the model has positions for")
    return min(settings.max_model_len or longest, longest)
