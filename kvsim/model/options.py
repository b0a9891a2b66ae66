"""`[model]`: which model is served, and how its weights and KV cache are stored."""

from dataclasses import replace
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from kvsim.layout import KVLayout
from kvsim.model.find import find_model
from kvsim.model.kv_cache import LayerCache, grouped
from kvsim.model.layers import Experts, Layer, Recurrence
from kvsim.model.model import Model
from kvsim.model.weights import DTYPE_BYTES, QUANTIZATIONS, WeightFormat
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options

# Checkpoints by vLLM's names, and how their weights are stored.
STORED_AS = dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin"), "int4")
MOST_STAGES = 1024  # of a pipeline: no model has more layers
DTYPES = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32"}


class ModelOptions(Options):
    """Exactly one of name (built-in name or Hugging Face id) and hf_config (path of a config.json).

    An id that is not built in is fetched, its config.json alone, with huggingface_hub installed.
    dtype: of weights and activations (auto, the default: the config's). quantization: none, fp8,
    int8, int4 (also as awq or gptq), nvfp4 or mxfp4 (default: the config's).
    weight_bytes_per_param: instead, for all parameters.
    kv_cache_dtype: auto (what the checkpoint asks for, else the model's dtype), fp16, bf16, fp32,
    fp8, nvfp4, fp8_per_token_head, int8_per_token_head, int4_per_token_head, fp8_ds_mla,
    nvfp4_ds_mla, int8, int4.
    kv_scale_group_size, kv_scale_bytes: for quantised caches, elements that share a scale and the
    bytes of it. mamba_ssm_cache_dtype: of recurrent states (default: the config's, else the
    model's). language_model_only: the towers that see and hear are not loaded, and prompts are text
    alone. max_model_len: longest sequence in tokens (default: the model's).

    tensor_parallel_size: GPUs each layer is split over. pipeline_parallel_size: stages the layers
    are dealt out to. pp_layer_partition: layers of each stage, such as "16,32"
    (VLLM_PP_LAYER_PARTITION); not given: as even as vLLM makes them. data_parallel_size: copies of
    the attention layers; the routed experts are split over all their GPUs. enable_expert_parallel:
    by whole experts. decode_context_parallel_size: of the tensor parallel GPUs, how many share the
    tokens of a sequence. A simulation runs all stages of a pipeline, in the pool of the stage with
    the fewest blocks. Of the data-parallel copies it runs one, with the requests of the scenario
    and the experts' part of all. [fleet] runs all: replicas = data_parallel_size.
    """

    name: str | None = None
    hf_config: Path | None = None
    dtype: str | None = None
    quantization: str | None = None
    weight_bytes_per_param: float | None = Field(default=None, gt=0)
    kv_cache_dtype: str = "auto"
    kv_scale_group_size: int | None = Field(default=None, ge=1)
    kv_scale_bytes: int | None = Field(default=None, ge=0)
    mamba_ssm_cache_dtype: str | None = None
    language_model_only: bool = False
    tensor_parallel_size: int = Field(default=1, ge=1)
    pipeline_parallel_size: int = Field(default=1, ge=1, le=MOST_STAGES)
    pp_layer_partition: str | None = Field(default=None, pattern=r"^[1-9]\d*(,[1-9]\d*)*$")
    data_parallel_size: int = Field(default=1, ge=1)
    enable_expert_parallel: bool = False
    decode_context_parallel_size: int = Field(default=1, ge=1)
    max_model_len: int | None = Field(default=None, ge=1)

    @field_validator("quantization")
    @classmethod
    def _by_its_numbers(cls, name: str | None) -> str | None:
        """Translate vLLM's name of a checkpoint format to the quantization that it stores."""
        return STORED_AS.get(name, name) if name else name

    @property
    def num_gpus(self) -> int:
        """Number of GPUs of one replica (one data-parallel copy)."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def stage_layers(self) -> tuple[int, ...] | None:
        """Number of layers of each pipeline stage; None: split evenly by the engine."""
        if self.pp_layer_partition is None:
            return None
        return tuple(int(layers) for layers in self.pp_layer_partition.split(","))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.name is None) == (self.hf_config is None):
            raise ValueError("give exactly one of name and hf_config")
        _check_dtype(self.dtype, "dtype")
        _check_dtype(self.mamba_ssm_cache_dtype, "dtype of states")
        given, count = self.stage_layers, self.pipeline_parallel_size
        if given is not None and not 1 < len(given) == count:
            raise ValueError(
                f"pp_layer_partition names {len(given)} stages, pipeline_parallel_size is {count}"
            )
        shared = self.decode_context_parallel_size
        if self.tensor_parallel_size % shared:
            raise ValueError(
                f"decode_context_parallel_size {shared} does not divide tensor_parallel_size "
                f"{self.tensor_parallel_size}"
            )
        if self.quantization not in (None, "none", *QUANTIZATIONS):
            known = ", ".join(["none", *QUANTIZATIONS])
            raise ValueError(f"unknown quantization {self.quantization!r}; known: {known}")
        if self.quantization is not None and self.weight_bytes_per_param is not None:
            raise ValueError("give at most one of quantization and weight_bytes_per_param")
        return self

    def build(self, folder: Path | None = None, *, offline: bool = False) -> Model:
        """Build the model. A relative hf_config starts at `folder` (the scenario's). offline:
        nothing is fetched.
        """
        if self.name is not None:
            model = find_model(self.name, offline=offline)
        else:
            assert self.hf_config is not None
            model = Model.from_hf((folder or Path()) / self.hf_config)
        return self._stored(self._served(model))

    def caches(self, model: Model) -> tuple[LayerCache, ...]:
        """The KV cache of each layer on one GPU."""
        return model.kv_caches(
            self.kv_cache_dtype,
            self.tensor_parallel_size,
            self.kv_scale_group_size,
            self.kv_scale_bytes,
        )

    def layout(self, model: Model, *, by_chunk: bool = False) -> KVLayout:
        """The KV layout on one GPU. by_chunk: group layers by chunks of local attention too."""
        return grouped(self.caches(model), by_chunk=by_chunk)

    def model_len(self, model: Model) -> int:
        """The longest sequence, in tokens; InputError if the model cannot do max_model_len."""
        longest = model.max_position_embeddings
        if self.max_model_len is not None and self.max_model_len > longest:
            raise InputError(
                f"{model.name} has no positions for sequences so long",
                where="model.max_model_len",
                value=self.max_model_len,
                limit=longest,
                remedy="lower it, or give a hf_config with a larger max_position_embeddings",
            )
        return self.max_model_len or longest

    def unused(self, model: Model) -> dict[str, str]:
        """Keys that were given but have no effect for this model, each with the reason."""
        states = model.is_recurrent
        experts = any(isinstance(each.feed_forward, Experts) for each in model.layers)
        found = {}
        if self.mamba_ssm_cache_dtype is not None and not states:
            found["mamba_ssm_cache_dtype"] = "the model has no recurrent layers"
        if self.enable_expert_parallel and not experts:
            found["enable_expert_parallel"] = "the model has no routed experts"
        return found

    def check_used(self, model: Model) -> None:
        """Raise InputError for a key that has no effect for this model."""
        for key, because in self.unused(model).items():
            self.refuse_idle("model", [key], because)

    def _served(self, model: Model) -> Model:
        """The model without parts that are not loaded; InputError for a text-only option on a model
        without towers.
        """
        if not self.language_model_only:
            return model
        if not model.tower_params:
            because = f"{model.name} has no tower that sees or hears"
            self.refuse_idle("model", ["language_model_only"], because)
        return model.without_towers()

    def _stored(self, model: Model) -> Model:
        """The model with weights and states in the formats that the options give."""
        states = self.mamba_ssm_cache_dtype
        if states not in (None, "auto"):
            dtype = DTYPES.get(states, states)
            model = replace(model, layers=tuple(_with_states(each, dtype) for each in model.layers))
        if self.quantization is not None or self.weight_bytes_per_param is not None:
            model = replace(model, stored=None)
        if self.dtype not in (None, "auto"):
            dtype = DTYPES.get(self.dtype, self.dtype)
            if DTYPE_BYTES[dtype] != DTYPE_BYTES[model.torch_dtype]:
                model = replace(model, stored=None)
            quantized = model.weight_format != WeightFormat.plain(model.torch_dtype)
            form = model.weight_format if quantized else WeightFormat.plain(dtype)
            model = replace(model, torch_dtype=dtype, weight_format=form)
        if self.weight_bytes_per_param is not None:
            bits = 8 * self.weight_bytes_per_param
            return replace(model, weight_format=WeightFormat(bits, bits, bits))
        if self.quantization == "none":
            plain = WeightFormat.plain(model.torch_dtype)
            return replace(model, weight_format=plain, kv_cache_dtype="auto")
        if self.quantization is not None:
            form = WeightFormat.quantized(self.quantization, model.torch_dtype)
            return replace(model, weight_format=form)
        return model


def _check_dtype(name: str | None, words: str) -> None:
    if name not in (None, "auto") and DTYPES.get(str(name), name) not in DTYPE_BYTES:
        raise ValueError(f"unknown {words} {name!r}; known: {', '.join(DTYPE_BYTES)}")


def _with_states(layer: Layer, dtype: str) -> Layer:
    if not isinstance(layer.mixer, Recurrence):
        return layer
    return replace(layer, mixer=replace(layer.mixer, ssm_dtype=dtype, ssm_dtype_named=True))
