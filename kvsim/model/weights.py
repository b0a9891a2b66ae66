"""Parameter counts of a model, by the parts that weight quantisation treats differently."""

from dataclasses import dataclass
from math import ceil
from typing import Self

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameter counts by kind.

    linear: matrices every token is multiplied with. expert: the matrices of routed experts. other:
    embeddings, output head, norms, biases (left in the model's own dtype by quantisers). mixer: the
    part of `linear` in attention and recurrence, which some quantisers skip. head: the part of
    `other` in an untied output head, which some quantisers convert.
    """

    linear: int = 0
    expert: int = 0
    other: int = 0
    mixer: int = 0
    head: int = 0

    def __add__(self, more: "Weights") -> "Weights":
        return Weights(
            self.linear + more.linear,
            self.expert + more.expert,
            self.other + more.other,
            self.mixer + more.mixer,
            self.head + more.head,
        )

    def times(self, count: int) -> "Weights":
        """The parameters multiplied by `count`."""
        return Weights(
            self.linear * count,
            self.expert * count,
            self.other * count,
            self.mixer * count,
            self.head * count,
        )

    @property
    def total(self) -> int:
        """Total number of parameters."""
        return self.linear + self.expert + self.other


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """Bits of a stored parameter, scales and zero points included, for each kind in `Weights`.

    method: the quantisation, a key of QUANTIZATIONS; "" for none of these. mixer_bits: bits in
    attention and recurrence; None: as linear_bits. head_bits: bits in the output head; None: as
    other_bits.
    """

    linear_bits: float
    expert_bits: float
    other_bits: float
    method: str = ""
    mixer_bits: float | None = None
    head_bits: float | None = None

    def num_bytes(self, weights: Weights) -> int:
        """Bytes of `weights` in this format, rounded up."""
        mixer_bits = self.linear_bits if self.mixer_bits is None else self.mixer_bits
        head_bits = self.other_bits if self.head_bits is None else self.head_bits
        bits = (
            (weights.linear - weights.mixer) * self.linear_bits
            + weights.mixer * mixer_bits
            + weights.expert * self.expert_bits
            + (weights.other - weights.head) * self.other_bits
            + weights.head * head_bits
        )
        return ceil(bits / 8)

    @classmethod
    def plain(cls, dtype: str) -> Self:
        """The format with every parameter in `dtype`."""
        bits = 8 * DTYPE_BYTES[dtype]
        return cls(bits, bits, bits)

    @classmethod
    def quantized(cls, method: str, dtype: str) -> Self:
        """The format with linear layers by `method` (a key of QUANTIZATIONS) and all else in
        `dtype`.

        mxfp4 applies only to routed experts, as gpt-oss publishes it.
        """
        plain, bits = 8 * DTYPE_BYTES[dtype], QUANTIZATIONS[method]
        return cls(plain if method == "mxfp4" else bits, bits, plain, method)


QUANTIZATIONS: dict[str, float] = {
    "fp8": 8.0,
    "int8": 8.0,
    "int4": 4 + 20 / 128,  # groups of 128 share a float16 scale and a 4-bit zero point
    "nvfp4": 4 + 8 / 16,  # blocks of 16 share an 8-bit float
    "mxfp4": 4 + 8 / 32,  # blocks of 32 share an 8-bit exponent
}
