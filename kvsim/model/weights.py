"""Parameters of a model, sorted by how they are stored: what a weight quantisation touches."""

from dataclasses import dataclass
from math import ceil
from typing import Any, Self

from kvsim.plumbing.errors import InputError

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


@dataclass(frozen=True, slots=True)
class Weights:
    """Counts of parameters.

    linear: matrices every token is multiplied with; expert: the matrices of routed experts;
    other: embeddings, output head, norms, biases (left in the model's own dtype by quantisers).
    """

    linear: int = 0
    expert: int = 0
    other: int = 0

    def __add__(self, more: "Weights") -> "Weights":
        return Weights(
            self.linear + more.linear, self.expert + more.expert, self.other + more.other
        )

    @property
    def total(self) -> int:
        """All parameters."""
        return self.linear + self.expert + self.other


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """Bits a stored parameter takes, scales and zero points included, by the kinds of `Weights`.

    method: the quantisation, a key of QUANTIZATIONS; "" without one, or for one of other bits.
    """

    linear_bits: float
    expert_bits: float
    other_bits: float
    method: str = ""

    def num_bytes(self, weights: Weights) -> int:
        """Bytes (rounded up) that `weights` take."""
        bits = (
            weights.linear * self.linear_bits
            + weights.expert * self.expert_bits
            + weights.other * self.other_bits
        )
        return ceil(bits / 8)

    @classmethod
    def plain(cls, dtype: str) -> Self:
        """Every parameter in `dtype`."""
        bits = 8 * DTYPE_BYTES[dtype]
        return cls(bits, bits, bits)

    @classmethod
    def quantized(cls, method: str, dtype: str) -> Self:
        """Linear layers by `method` (a key of QUANTIZATIONS), the rest in `dtype`.

        mxfp4 is applied to routed experts alone, as gpt-oss publishes it.
        """
        plain, bits = 8 * DTYPE_BYTES[dtype], QUANTIZATIONS[method]
        return cls(plain if method == "mxfp4" else bits, bits, plain, method)

    @classmethod
    def from_hf(cls, config: dict[str, Any], dtype: str, where: str) -> Self:
        """The format named by a `quantization_config` table of a Hugging Face config.json."""
        method = str(config.get("quant_method", ""))
        if method in ("awq", "gptq"):
            return cls._grouped(int(config.get("bits", 4)), config.get("group_size"), dtype)
        if method == "compressed-tensors":
            groups: dict[str, Any] = config.get("config_groups") or {}
            group = next((g.get("weights") or {} for g in groups.values()), {})
            return cls._grouped(int(group.get("num_bits", 16)), group.get("group_size"), dtype)
        if method == "bitsandbytes":
            return cls.quantized("int4" if config.get("load_in_4bit") else "int8", dtype)
        method = "fp8" if method == "fbgemm_fp8" else method
        if method not in QUANTIZATIONS:
            raise InputError(
                "unknown quant_method",
                where=f"{where}: quantization_config",
                value=repr(method),
                limit=", ".join(["awq", "gptq", "compressed-tensors", *QUANTIZATIONS]),
                remedy="drop the table and set quantization or weight_bytes_per_param in [model]",
            )
        return cls.quantized(method, dtype)

    @classmethod
    def _grouped(cls, bits: int, group_size: int | None, dtype: str) -> Self:
        """A float16 scale and a zero point of `bits` bits for each group along the input."""
        overhead = (16 + bits) / group_size if group_size and group_size > 0 else 0.0
        return cls(bits + overhead, bits + overhead, 8 * DTYPE_BYTES[dtype])


QUANTIZATIONS: dict[str, float] = {
    "fp8": 8.0,
    "int8": 8.0,
    "int4": 4 + 20 / 128,  # groups of 128 share a float16 scale and a 4-bit zero point
    "nvfp4": 4 + 8 / 16,  # blocks of 16 share an 8-bit float
    "mxfp4": 4 + 8 / 32,  # blocks of 32 share an 8-bit exponent
}
