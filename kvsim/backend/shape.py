"""The shape of a Llama-like decoder: all that its memory and its step times depend on."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import read_object

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

_NOT_LLAMA = {
    "kv_lora_rank": "multi-head latent attention",
    "num_local_experts": "a mixture of experts",
    "num_experts": "a mixture of experts",
    "n_routed_experts": "a mixture of experts",
}


# By the config's model_type: what a layer has beside what Llama's has.
_BLOCKS = {
    "": {"qkv_bias": False, "qk_norm": False},
    "llama": {"qkv_bias": False, "qk_norm": False},
    "mistral": {"qkv_bias": False, "qk_norm": False},
    "qwen2": {"qkv_bias": True, "qk_norm": False},
    "qwen3": {"qkv_bias": False, "qk_norm": True},
}


def block_of(kind: str, where: str) -> dict[str, bool]:
    """qkv_bias and qk_norm of a model_type; InputError for layers of another form."""
    if kind not in _BLOCKS:
        raise InputError(
            "the backend computes Llama-shaped decoders only: equal layers of full attention and "
            "a gated feed-forward network",
            where=where,
            value=kind,
            remedy=f"a model_type of: {', '.join(name for name in _BLOCKS if name)}",
        )
    return _BLOCKS[kind]


def _window(config: Mapping[str, Any], where: str) -> int | None:
    """The window of all layers of a config.json; InputError where only some have one."""
    window = config.get("sliding_window") or None
    if window is None or not config.get("use_sliding_window", True):
        return None
    if config.get("max_window_layers") or config.get("layer_types"):
        raise InputError(
            "layers with and without a window are not computed together",
            where=f"{where}: sliding_window",
            value=window,
        )
    return int(window)


def _weights(config: Mapping[str, Any], where: str) -> str | None:
    """The form of the layers' weights; InputError for one that is not computed."""
    quantisation = config.get("quantization_config")
    if not quantisation:
        return None
    method = quantisation.get("quant_method") if isinstance(quantisation, Mapping) else quantisation
    if method != "fp8":
        raise InputError(
            "weights in this form are not computed",
            where=f"{where}: quantization_config",
            value=method,
            remedy="fp8, or leave it out",
        )
    return "fp8"


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder of RMSNorm, RoPE, grouped-query attention and SwiGLU.

    hidden: width of the residual stream; intermediate: width of the SwiGLU; dtype: of weights,
    activations and cache, one of float64, float32, bfloat16, float16. qkv_bias: queries, keys and
    values have a bias (Qwen 2). qk_norm: each head's queries and keys are normed (Qwen 3). window:
    newest tokens that a query sees in every layer, its own included; None: all. weights: "fp8" for
    layers' matrices in E4M3; None: in dtype.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    dtype: str = "float32"
    qkv_bias: bool = False
    qk_norm: bool = False
    window: int | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if type(value) is int and value < 1:
                raise InputError("must be at least 1", where=f"shape.{name}", value=value)
        if self.dtype not in DTYPE_BYTES:
            raise InputError(
                "unknown dtype",
                where="shape.dtype",
                value=self.dtype,
                remedy=f"known: {', '.join(DTYPE_BYTES)}",
            )
        if self.weights not in (None, "fp8"):
            raise InputError(
                "unknown weights", where="shape.weights", value=self.weights, remedy="fp8"
            )
        if self.heads % self.kv_heads:
            raise InputError(
                "must be a multiple of kv_heads",
                where="shape.heads",
                value=self.heads,
                limit=self.kv_heads,
            )
        if self.head_dim % 2:
            raise InputError("must be even: RoPE turns pairs", where="shape.head_dim")

    @classmethod
    def from_hf(cls, config: Mapping[str, Any] | str | Path, dtype: str | None = None) -> Self:
        """The shape of a Hugging Face config.json (its path, or the parsed object).

        dtype: takes the place of the config's own. InputError names the key that is missing, or
        what makes the model something else than a Llama-shaped decoder.
        """
        where = "config.json"
        if isinstance(config, str | Path):
            where = str(config)
            config = read_object(Path(config))
        for key, what in _NOT_LLAMA.items():
            if config.get(key):
                raise InputError(
                    f"{what} is no Llama-shaped decoder", where=f"{where}: {key}", value=config[key]
                )

        def need(key: str, default: int | None = None) -> int:
            value = default if config.get(key) is None else config[key]
            if type(value) is not int or value < 1:
                raise InputError(
                    "a whole number is required",
                    where=f"{where}: {key}",
                    value=value,
                    limit="at least 1",
                )
            return value

        block = block_of(str(config.get("model_type") or "llama"), f"{where}: model_type")
        if block["qkv_bias"] < bool(config.get("attention_bias")):
            raise InputError(
                "biases of all projections are not computed",
                where=f"{where}: attention_bias",
                value=True,
                remedy="set it to false: step times hardly change",
            )
        heads = need("num_attention_heads")
        hidden = need("hidden_size")
        return cls(
            layers=need("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=need("num_key_value_heads", heads),
            head_dim=need("head_dim", hidden // heads),
            intermediate=need("intermediate_size"),
            vocab=need("vocab_size"),
            dtype=dtype or str(config.get("dtype") or config.get("torch_dtype") or "float32"),
            window=_window(config, where),
            weights=_weights(config, where),
            qkv_bias=block["qkv_bias"],
            qk_norm=block["qk_norm"],
        )

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def kv_dim(self) -> int:
        """Elements of K (and of V) per token in one layer."""
        return self.kv_heads * self.head_dim

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V per token in all layers."""
        return 2 * self.layers * self.kv_dim * DTYPE_BYTES[self.dtype]

    @property
    def layer_weights(self) -> int:
        """Weights of the matrices of all layers: the P of 2 * P FLOP a token (no embeddings)."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def layer_weight_bytes(self) -> int:
        """Bytes of the matrices of all layers, scales left out."""
        return self.layer_weights * (1 if self.weights else DTYPE_BYTES[self.dtype])

    def as_dict(self) -> dict[str, int | str | bool | None]:
        """The fields, and the KV bytes per token, for a file."""
        return {**asdict(self), "kv_bytes_per_token": self.kv_bytes_per_token}
