"""The kernels of recurrent mixers: measured for the gated delta rule, by bandwidth for others."""

from kvsim.model import Recurrence
from kvsim.model.weights import DTYPE_BYTES
from kvsim.step_time.kernels.dtypes import mixer_dtypes
from kvsim.step_time.kernels.parts import Kernels, LayerKernels
from kvsim.step_time.kernels.tables import KernelLine

STREAMED = 0.8  # of the bandwidth, that kernels which only move bytes come to
START_US = 3.0  # of such a kernel


def recurrence_parts(kernels: Kernels, mixer: Recurrence, count: int) -> LayerKernels:
    """Kernels of `count` recurrent layers on one GPU.

    Its projections count as one matrix product in and one out.
    """
    tp, hidden = kernels.split.tp, kernels.model.hidden_size
    dtypes = mixer_dtypes(kernels.model)
    outwards = mixer.linear_params // hidden // 3  # the widths of in and out are 2 : 1, or nearly
    delta = delta_heads(mixer, hidden)
    if delta is not None:
        outwards = delta[2] * delta[3]
    inwards = mixer.linear_params // hidden - outwards
    parts = LayerKernels()
    parts.tokens += [
        (count, kernels.gemm(max(1, inwards // tp), hidden, dtypes)),
        (count, kernels.gemm(hidden, max(1, outwards // tp), dtypes)),
    ]
    decode, prefill = (kernels.tables.family(f"delta_{each}") for each in ("decode", "prefill"))
    if delta is not None and decode is not None and prefill is not None:
        heads, width, value_heads, value_width = delta
        shape = (max(1, heads // tp), width, max(1, value_heads // tp), value_width)
        line = decode.scaled(shape, lambda sizes, _: sizes[2])
        assert line is not None
        parts.states.append((count, line.at))
        lines = prefill.sheet(shape, lambda sizes, _: sizes[2], ())
        parts.prefill.append((count, lines, False))
        return parts
    state = mixer.ssm_elements // tp * DTYPE_BYTES[mixer.ssm_dtype]
    rate = 2 * state / (kernels.device.bandwidth_bytes_per_s * STREAMED) * 1e6
    parts.states.append((count, lambda batch: START_US + batch * rate))
    moved = 4 * max(1, inwards // tp) / (kernels.device.bandwidth_bytes_per_s * STREAMED) * 1e6
    ends = (1.0, 65536.0)
    parts.prefill.append(
        (count, {1: KernelLine(ends, tuple(START_US + x * moved for x in ends))}, False)
    )
    return parts


def delta_heads(mixer: Recurrence, hidden: int) -> tuple[int, int, int, int] | None:
    """(key heads, key width, value heads, value width) of a gated delta rule with heads 128 wide,
    from its sizes.

    None for other recurrences.

    The input projection has the convolved keys, queries and values, a gate as wide as the values,
    and two numbers per value head. The output projection has the values.
    """
    width = 128
    heads, rest = divmod(mixer.linear_params // hidden - mixer.conv_width, 2 * width + 2)
    keys = (mixer.conv_width - heads * width) // (2 * width)
    if rest or heads < 1 or keys < 1 or mixer.ssm_elements != heads * width * width:
        return None
    return keys, width, heads, width
