"""Physical bounds on every step time; a composed form that breaks one is not used.

A decode step takes at least the time of its bytes at the device's peak bandwidth. It takes at most
MOST_TIMES that of its bytes or FLOPs, plus the host's part and the latency of its collectives. It
does not fall with the batch, nor grow by more than the batch. A form that breaks this anywhere on
the grid is not used: `auto` takes the next kind, and says why.
"""

from collections.abc import Sequence
from dataclasses import replace

from kvsim.model import Model
from kvsim.model.layers import Absent
from kvsim.plumbing.units import FS_PER_PS, PS_PER_US
from kvsim.step import StepShape
from kvsim.step_time.kernels.composed import KernelSteps
from kvsim.step_time.options import Hardware
from kvsim.step_time.roofline import Roofline
from kvsim.step_time.roofline_form import RooflineForm

MOST_TIMES = 20
BATCHES = tuple(2**at for at in range(11))
CONTEXTS = (256, 4096, 32768)  # tokens of each sequence
FEW_BATCHES, FEW_CONTEXTS = (1, 8, 64, 1024), (256, 32768)  # whenever a form is built
STARTS_US = 60.0  # of a layer's collectives among GPUs of one server
SLACK = 1.02  # small matrices that no kernel is known of are left out of a step


def bytes_alone(hardware: Hardware) -> RooflineForm:
    """The form that times only the bytes of a step, at the peak bandwidth: a lower bound."""
    form = at_peak(hardware)
    attention = tuple(
        replace(each, context_ps=each.read_fs // FS_PER_PS, query_fs=0) for each in form.attention
    )
    if any(getattr(layer.mixer, "index_heads", 0) for layer in hardware.model.layers):
        attention = ()  # of picked tokens, which lie together: no floor is known
    return replace(form, token_ps=0, logits_ps=0, attention=attention)


def at_peak(hardware: Hardware) -> RooflineForm:
    """The form that times a step's bytes or FLOPs, whichever take longer, at the peak rates."""
    peak = Roofline(memory_efficiency=1.0, compute_efficiency=1.0, layer_us=0, all_reduce_us=0)
    return replace(peak.build(hardware), base_ps=0, all_reduce_token_ps=0)


def fault(
    form: KernelSteps,
    hardware: Hardware,
    batches: Sequence[int] = BATCHES,
    contexts: Sequence[int] = CONTEXTS,
) -> str:
    """The sentence on the bound that a form of this hardware violates; empty if none."""
    alone, peak = bytes_alone(hardware), at_peak(hardware)
    host = form.host
    starts_ps = _starts_us(hardware.model, hardware) * PS_PER_US
    for context in contexts:
        before, fewer = 0, 1
        for batch in batches:
            shape = StepShape((), batch, batch * context)
            took, least = form.step_ps(shape), alone.step_ps(shape)
            beside = host.step_ps + host.launch_ps + host.sequence_ps * batch + starts_ps
            where = f"a step of {batch} sequences of {context:,} tokens takes {_ms(took)}"
            if took * SLACK < least:
                return f"{where}, and its bytes alone {_ms(least)}"
            most = MOST_TIMES * peak.step_ps(shape)
            if took > most * SLACK + beside:
                return f"{where}, more than {MOST_TIMES} times what the peak rates allow"
            if before and took * SLACK < before:
                return f"{where}, less than one of {fewer}"
            if before and took > batch / fewer * before * SLACK:
                return f"{where}, more than {batch // fewer} times as long as one of {fewer}"
            before, fewer = took, batch
    return ""


def _starts_us(model: Model, hardware: Hardware) -> float:
    """Start latency in us of a step's collectives, among all GPUs that share it."""
    gpus = hardware.tensor_parallel_size * hardware.data_parallel_size
    if gpus == 1:
        return 0.0
    layers = sum(not isinstance(layer.mixer, Absent) for layer in model.layers)
    nodes = -(-gpus // hardware.device.gpus_per_node)
    return layers * STARTS_US * nodes


def _ms(ps: float) -> str:
    return f"{ps / 1e9:.3g} ms"
