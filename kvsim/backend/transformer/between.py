"""The work of a decoder between its matrix products: in torch, or in fused GPU kernels."""

from typing import NamedTuple, Protocol

from torch import Tensor
from torch.nn.functional import rms_norm, silu

from kvsim.backend.transformer.products import Fp8Rows, quantise

EPSILON = 1e-5


class Normed(NamedTuple):
    """The residual stream, and its norm: [tokens, hidden] each."""

    stream: Tensor
    normed: Tensor


class Between(Protocol):
    """Work between two matrix products: residual and norm, SwiGLU, quantisation to FP8."""

    def add_norm(self, stream: Tensor, delta: Tensor | None, weight: Tensor) -> Normed:
        """Stream + delta (None: nothing is added), and the RMSNorm of that, times weight."""
        ...

    def gate(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up of [tokens, 2 * intermediate]: gates first."""
        ...

    def narrow(self, rows: Tensor) -> Fp8Rows:
        """See `Quantise`; only for weights in FP8."""
        ...


class PlainBetween:
    """`Between` in torch, launch by launch, on any device and in any dtype."""

    def add_norm(self, stream: Tensor, delta: Tensor | None, weight: Tensor) -> Normed:
        """See `Between`."""
        if delta is not None:
            stream = stream + delta
        return Normed(stream, rms_norm(stream, weight.shape, weight, EPSILON))

    def gate(self, gate_up: Tensor) -> Tensor:
        """See `Between`."""
        gates, up = gate_up.chunk(2, dim=-1)
        return silu(gates) * up

    def narrow(self, rows: Tensor) -> Fp8Rows:
        """See `Between`."""
        return quantise(rows)


class FusedBetween:
    """`Between` with the kernels of `kvsim.backend.transformer.fused`."""

    def add_norm(self, stream: Tensor, delta: Tensor | None, weight: Tensor) -> Normed:
        """See `Between`."""
        from kvsim.backend.transformer.triton_between import add_norm

        return Normed(*add_norm(stream, delta, weight, EPSILON))

    def gate(self, gate_up: Tensor) -> Tensor:
        """See `Between`."""
        from kvsim.backend.transformer.triton_between import gate

        return gate(gate_up)

    def narrow(self, rows: Tensor) -> Fp8Rows:
        """See `Between`."""
        from kvsim.backend.transformer.triton_between import narrow

        return Fp8Rows(*narrow(rows))
