"""The server that settings describe: its model, its device, its pool, its scheduler.

What nobody said is as the engine has it by default (`kvsim.observed.vllm_defaults`), and listed.
"""

from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

from kvsim.device import device_names, named_device
from kvsim.interchange.description import Settings
from kvsim.layout import KVLayout
from kvsim.memory.paged.groups.grouping import group_layers, is_uniform
from kvsim.model import Model, ModelOptions
from kvsim.observed.vllm_defaults import NEWEST, release
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB

_V1 = (0, 8)
_SAME_MEMORY = 1e-3  # between what a log says of a device and what the catalogue does
_PLAIN_BLOCK = {"vllm": 16, "sglang": 1, "tensorrt-llm": 32}
# Settings that a meta.json of vLLM's has by the same name.
_META = (
    *("tensor_parallel_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len"),
    *("block_size", "enable_prefix_caching", "async_scheduling", "enable_chunked_prefill"),
    *("scheduler_reserve_full_isl", "long_prefill_token_threshold", "policy"),
)


@dataclass(frozen=True, slots=True)
class Server:
    """What is served, and by whom. model: as [model] takes it; device: a name of the catalogue.

    layout: None where the model is not known. told: the engine's settings as meta.json of an
    observed run has them; meta: the same with its defaults in place. assumed: what was taken for
    granted, in words.
    """

    settings: Settings
    model: dict[str, Any]
    device: str
    layout: KVLayout | None
    told: dict[str, Any]
    meta: VllmMeta
    assumed: tuple[str, ...]

    @property
    def engine(self) -> str:
        """vLLM, unless a source said otherwise."""
        return self.settings.engine or "vllm"

    @property
    def uniform(self) -> bool:
        """Whether one block of the engine's holds its tokens in all layers."""
        windows = not self.settings.disable_hybrid_kv_cache_manager
        return self.layout is None or is_uniform(self.layout, windows=windows)

    def scheduler(self) -> dict[str, Any]:
        """[scheduler]."""
        meta = self.meta
        limits = {
            "max_num_seqs": meta.max_num_seqs,
            "max_num_batched_tokens": meta.max_num_batched_tokens,
        }
        if self.engine == "tensorrt-llm":
            policy = self.settings.capacity_policy or "guaranteed-no-evict"
            return {"kind": "trt-llm", "capacity_scheduler_policy": policy} | limits
        if self.engine == "vllm" and release(meta.vllm_version) < _V1:
            return {"kind": "vllm-v0"} | limits
        return {"kind": "continuous"} | meta.scheduler_options().model_dump(exclude_unset=True)

    def allocator(self) -> dict[str, Any]:
        """[[allocator]]."""
        settings = self.settings
        table: dict[str, Any] = {
            "kind": "paged",
            "block_size": self.meta.block_size,
            "enable_prefix_caching": self.meta.enable_prefix_caching,
        }
        if settings.host_cache_gib is not None and self.meta.enable_prefix_caching:
            table["host_cache_gib"] = settings.host_cache_gib
        if settings.disable_hybrid_kv_cache_manager:
            table["disable_hybrid_kv_cache_manager"] = True
        return table

    def memory(self, notes: list[str]) -> dict[str, Any]:
        """[memory]: the pool as the engine made it, else what it is made from."""
        settings, block = self.settings, self.meta.block_size
        blocks, tokens = settings.num_gpu_blocks, settings.kv_cache_tokens
        if blocks is None and tokens is not None and self.uniform:
            blocks = max(round(tokens / block), 1)
        if blocks is not None and self.uniform:
            return {"num_gpu_blocks": blocks}
        if blocks is not None:
            assert self.layout is not None
            grouping = group_layers(self.layout, block)
            size = blocks * grouping.slot_bytes * grouping.block_size
            notes.append(
                f"{blocks:,} blocks of {len(grouping.groups)} groups of layers: {size:,} bytes"
            )
            return {"kv_cache_bytes": size}
        if settings.kv_cache_bytes is not None:
            return {"kv_cache_bytes": settings.kv_cache_bytes}
        if settings.available_kv_gib is not None:
            notes.append(f"the pool is {settings.available_kv_gib:g} GiB, as the log rounds it")
            return {"kv_cache_bytes": round(settings.available_kv_gib * GIB)}
        if tokens is not None:
            notes.append(
                "the pool in tokens, which the engine counts in its own way for this model"
            )
            return {"kv_cache_tokens": tokens}
        return self._estimated(notes)

    def _estimated(self, notes: list[str]) -> dict[str, Any]:
        settings, table = self.settings, dict[str, Any]()
        notes.append("nobody says how large the pool is: kvsim sizes it as the engine would")
        if settings.gpu_memory_utilization is not None:
            table["gpu_memory_utilization"] = settings.gpu_memory_utilization
        if self.engine == "vllm":
            old = release(self.meta.vllm_version) < _V1
            table["engine_version"] = "V0" if old else self.meta.vllm_version
        if settings.enforce_eager:
            table["enforce_eager"] = True
        if settings.weights_gib is not None:
            table["weights_gib"] = settings.weights_gib
        return table


def server_of(settings: Settings) -> Server:
    """The server; InputError where its model or its device cannot be told."""
    assumed: list[str] = []
    device = _device(settings, assumed)
    model, built, layout = _model(settings, assumed)
    known = settings.said()
    table: dict[str, Any] = {name: known[name] for name in _META if name in known}
    if built is not None:
        table["max_model_len"] = _longest(settings, built, assumed)
    engine = settings.engine or "vllm"
    if engine == "vllm" and settings.engine_version is not None:
        table["vllm_version"] = settings.engine_version
    elif engine != "vllm":
        table["vllm_version"] = NEWEST  # whose rules stand for those of another engine
        table.setdefault("block_size", _PLAIN_BLOCK[engine])
        assumed.append(
            f"{engine}: kvsim's paged memory and continuous batching stand for its own"
            if engine == "sglang"
            else f"{engine}: kvsim's paged memory stands for its own"
        )
    table |= {"model": str(model.get("name", model.get("hf_config"))), "gpu": device}
    table["num_gpu_blocks"] = _blocks(settings, layout, table, assumed)
    meta = VllmMeta.parse(table, "import")
    assumed.extend(line for line in meta.assumptions if not line.startswith("num_gpu_blocks"))
    assumed.extend(
        f"{name} = {known[name]}: one replica, not split into stages, stands for all"
        for name in ("pipeline_parallel_size", "data_parallel_size")
        if (known.get(name) or 1) > 1
    )
    model["max_model_len"] = meta.max_model_len
    return Server(settings, model, device, layout, table, meta, tuple(assumed))


def _longest(settings: Settings, model: Model, assumed: list[str]) -> int:
    """max_model_len, at most what the model has positions for."""
    longest = model.max_position_embeddings
    if settings.max_model_len is None:
        assumed.append(f"max_model_len = {longest}: the model's own maximum")
    elif settings.max_model_len > longest:
        assumed.append(f"max_model_len = {longest}: what the model has positions for")
    return min(settings.max_model_len or longest, longest)


def _blocks(
    settings: Settings, layout: KVLayout | None, table: dict[str, Any], assumed: list[str]
) -> int | None:
    """Blocks of all layers, for an observed run, which knows one kind of layer; None where nobody
    tells the pool in blocks or tokens.
    """
    windows = not settings.disable_hybrid_kv_cache_manager
    block = int(table.get("block_size", _PLAIN_BLOCK["vllm"]))
    if layout is not None and not is_uniform(layout, windows=windows):
        if settings.num_gpu_blocks is None:
            return None
        groups = len(group_layers(layout, block).groups)
        assumed.append(
            f"an observed run keeps every token in all layers: {groups} groups of layers as one"
        )
        return max(settings.num_gpu_blocks // groups, 2)
    if settings.num_gpu_blocks is not None:
        return settings.num_gpu_blocks
    if settings.kv_cache_tokens is None:
        return None
    return max(round(settings.kv_cache_tokens / block), 2)


def _device(settings: Settings, assumed: list[str]) -> str:
    if settings.gpu is not None:
        return named_device(settings.gpu, "--device").name
    memory = settings.gpu_memory_gib
    alike = [
        name
        for name in device_names()
        if memory is not None
        and isclose(named_device(name).memory_bytes, memory * GIB, rel_tol=_SAME_MEMORY)
    ]
    if len(alike) == 1:
        assumed.append(f"device = {alike[0]}: of all in the catalogue it has {memory:g} GiB")
        return alike[0]
    raise InputError(
        "no source names the device",
        where="[device]",
        value=f"{memory:g} GiB: {', '.join(alike) or 'none in the catalogue'}" if memory else None,
        remedy="give --device",
    )


def _model(
    settings: Settings, assumed: list[str]
) -> tuple[dict[str, Any], Model | None, KVLayout | None]:
    """([model], the model, its layout); None where it is not known here."""
    name = settings.model or settings.served_model_name
    if name is None:
        raise InputError("no source names the model", where="[model]", remedy="give --model")
    if settings.model is None:
        assumed.append(f"model = {name}: the name it is served under")
    table: dict[str, Any] = {"tensor_parallel_size": settings.tensor_parallel_size or 1}
    if settings.kv_cache_dtype is not None:
        table["kv_cache_dtype"] = settings.kv_cache_dtype
    if settings.quantization is not None:
        table["quantization"] = settings.quantization
    if (Path(name) / "config.json").is_file():
        choices: list[dict[str, Any]] = [{"hf_config": name}]
    else:
        choices = [{"name": each} for each in _names(name)]
    for choice in choices:
        try:
            options = ModelOptions.parse(choice | table, "[model]")
            model = options.build(offline=True)
            layout = options.layout(model)
        except InputError:
            continue
        called = choice.get("name")
        if called is not None and called != name:
            assumed.append(f"model = {called}: by the path {name}")
        return choice | table | _dtype(settings, model), model, layout
    assumed.append(f"model {name}: not known here; its layers are taken to be alike")
    return {"name": name} | table | _dtype(settings, None), None, None


def _dtype(settings: Settings, model: Model | None) -> dict[str, Any]:
    """The type of the weights, where it is not the model's own."""
    if settings.dtype is None or (model is not None and model.torch_dtype == settings.dtype):
        return {}
    return {"dtype": settings.dtype}


def _names(name: str) -> list[str]:
    """What a model may be called: as it is, or by the last parts of a path or a cache folder."""
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
