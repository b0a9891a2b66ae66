"""A model on a device, composed of its kernels: from tables in us to the form in picoseconds."""

from collections import Counter
from collections.abc import Sequence
from math import inf

from kvsim.layout import KVGroup, KVLayout
from kvsim.model import Attention, Dense, Experts, LatentAttention, Recurrence
from kvsim.model.layers import Absent, Mixer
from kvsim.plumbing.units import PS_PER_US
from kvsim.step_time.correction import WHOLE_PPM, Correction
from kvsim.step_time.kernels.attention import attention_parts
from kvsim.step_time.kernels.composed import HostTime, KernelSteps, MeasuredLimits
from kvsim.step_time.kernels.curves import KernelSheet, TimePoints
from kvsim.step_time.kernels.dtypes import plain_dtypes
from kvsim.step_time.kernels.feed_forward import dense_costs, expert_costs
from kvsim.step_time.kernels.host import HostCost
from kvsim.step_time.kernels.latent import latent_parts
from kvsim.step_time.kernels.missing import NotMeasured
from kvsim.step_time.kernels.parts import Cost, Kernels, LayerKernels, added
from kvsim.step_time.kernels.recurrence import STREAMED, recurrence_parts
from kvsim.step_time.kernels.sequence_attention import LocalSheet, PrefillChunks
from kvsim.step_time.kernels.steady import steady, steady_batches
from kvsim.step_time.kernels.tables import KernelLine

MOST_TOKENS = 65536
TOKENS = sorted(
    {*range(1, 17), *(round(16 * 2 ** (at / 8)) for at in range(97)), *(2**at for at in range(17))}
)
LONGEST = 2**21
SAMPLED = sorted({*range(1, 9), *(2**at for at in range(3, 14))})


def composed(
    kernels: Kernels, layout: KVLayout, host: HostCost, elsewhere: KVLayout | None = None
) -> KernelSteps:
    """The form; InputError where a layer has kernels that were not measured.

    elsewhere: layout of the whole pipeline; a stage's layers may read its caches.
    """
    groups = [*layout.groups, *(elsewhere.groups if elsewhere is not None else ())]
    model, split = kernels.model, kernels.split
    parts = LayerKernels()
    longest = inf
    for mixer, count in Counter(layer.mixer for layer in model.layers).items():
        found = _mixer_parts(kernels, mixer, count, groups)
        reach = min((_reach(lines) for _, lines in found.decode), default=inf)
        longest = min(longest, reach)
        found.decode = [
            (layers, _physical(kernels, mixer, lines, groups)) for layers, lines in found.decode
        ]
        parts.add(found)
    for part, count in Counter(layer.feed_forward for layer in model.layers).items():
        if isinstance(part, Dense):
            parts.tokens += dense_costs(kernels, part, count)
        elif isinstance(part, Experts):
            parts.tokens += expert_costs(kernels, part, count)
    parts.tokens += _communication(kernels)
    parts.tokens.append((1, _elementwise(kernels)))
    vocabulary = model.vocab_size // split.tp
    head = kernels.gemm(vocabulary, model.hidden_size, plain_dtypes(model))
    states = _states(parts, layout, kernels) if parts.states else None
    decode = [lines for _, lines in parts.decode]
    decode += [each.decode for each in parts.local]
    form = KernelSteps(
        tokens=_points(TOKENS, added(parts.tokens)),
        head=_points(SAMPLED, head),
        states=None if states is None else _points(SAMPLED, states),
        decode=[_sheet(count, lines) for count, lines in parts.decode],
        prefill=[
            PrefillChunks(_sheet(count, _longer(lines)), whole)
            for count, lines, whole in parts.prefill
        ]
        + [
            PrefillChunks(_sheet(each.layers, _longer(each.prefill)), True, each.chunk_tokens)
            for each in parts.local
        ],
        host=HostTime(0, 0, 0),
        limits=MeasuredLimits(
            tokens=MOST_TOKENS,
            sequences=min(map(max, decode), default=MOST_TOKENS),
            context_tokens=LONGEST if longest is inf else int(longest),
        ),
        measured=kernels.tables.measured,
        source=kernels.tables.source,
        local=[
            LocalSheet(each.chunk_tokens, _sheet(each.layers, each.decode)) for each in parts.local
        ],
    )
    form = form.corrected(Correction(scale_ppm=round(host.scale * WHOLE_PPM)))
    sparse = sum(isinstance(layer.feed_forward, Experts) for layer in model.layers)
    step_us = host.step_us + host.layer_us * model.num_layers
    step_us += host.experts_us * sparse / (split.tp * split.dp)
    step_us += host.workers_us * (split.tp > 1)
    form.host = HostTime(*map(_ps, (step_us, host.sequence_us, host.prompts_us)))
    form.host.launch_ps = _ps(host.launch_us)
    form.host.prompt_launch_ps = _ps(host.prompt_launch_us)
    return form


def _mixer_parts(
    kernels: Kernels, mixer: Mixer, count: int, groups: Sequence[KVGroup]
) -> LayerKernels:
    if isinstance(mixer, Attention):
        group = _group(groups, mixer.window_tokens, latent=False)
        return attention_parts(kernels, mixer, count, group.bytes_per_token / group.layers)
    if isinstance(mixer, LatentAttention):
        group = _group(groups, None, latent=True)
        return latent_parts(kernels, mixer, count, group.bytes_per_token / group.layers)
    if isinstance(mixer, Recurrence):
        return recurrence_parts(kernels, mixer, count)
    if isinstance(mixer, Absent):
        return LayerKernels()
    raise NotMeasured(
        "no kernels of this model's attention are tabulated",
        where="step_time.kind",
        value=kernels.model.name,
        remedy='choose step_time.kind = "roofline"',
    )


def _states(parts: LayerKernels, layout: KVLayout, kernels: Kernels) -> Cost:
    """Times of recurrent layers by number of sequences, at least the time to read and write their
    states.
    """
    cost = added(parts.states)
    moved = 2 * sum(group.state_bytes for group in layout.groups)
    least_us = moved / kernels.device.bandwidth_bytes_per_s * 1e6
    return lambda sequences: max(cost(sequences), least_us * sequences)


def _physical(
    kernels: Kernels, mixer: Mixer, lines: dict[int, KernelLine], groups: Sequence[KVGroup]
) -> dict[int, KernelLine]:
    """The curves of a layer's decode attention, none below the time to read its KV bytes. Of picked
    tokens (an indexer's) the bytes are those of the picked ones, and no floor is known.
    """
    latent = isinstance(mixer, LatentAttention)
    window = mixer.window_tokens if isinstance(mixer, Attention) else None
    group = _group(groups, window, latent)
    token_us = group.bytes_per_token / group.layers / kernels.device.bandwidth_bytes_per_s * 1e6
    if isinstance(mixer, LatentAttention) and mixer.index_heads:
        token_us = 0.0
    return steady_batches(lines, token_us, window)


def _group(every: Sequence[KVGroup], window: int | None, latent: bool) -> KVGroup:
    """The KV cache group that layers with this window read; the first group if none matches."""
    groups = [group for group in every if group.kind != "recurrent"]
    fitting = [
        group
        for group in groups
        if (group.kind == "mla") == latent and group.window_tokens == window
    ]
    return (fitting or groups)[0]


def _communication(kernels: Kernels) -> list[tuple[float, Cost]]:
    """All-reduces after attention and feed-forward parts; with copies of the attention, all-gathers
    of tokens for the experts and reduce-scatters of their sums.
    """
    model, split = kernels.model, kernels.split
    hidden = model.hidden_size
    mixers = sum(not isinstance(layer.mixer, Absent) for layer in model.layers)
    sparse = sum(isinstance(layer.feed_forward, Experts) for layer in model.layers)
    dense = sum(isinstance(layer.feed_forward, Dense) for layer in model.layers)
    costs: list[tuple[float, Cost]] = []
    reduced = mixers + dense + (sparse if split.dp == 1 else 0)
    if split.tp > 1 and reduced:
        reduce = kernels.reduction(split.tp)
        costs.append((reduced, lambda tokens: reduce(tokens * hidden)))
    if split.dp > 1 and sparse:
        gpus = split.tp * split.dp
        moved = [kernels.collective(name, gpus) for name in ("all_gather", "reduce_scatter")]
        width = hidden * split.dp
        costs.append((sparse, lambda tokens: sum(cost(tokens * width) for cost in moved)))
    return costs


def _elementwise(kernels: Kernels) -> Cost:
    """Norms, rotations, activations, cache writes and quantisation: the bytes they move; what
    they take to start is in the host's part. The activation of routed experts is in their kernel.
    """
    model, tp = kernels.model, kernels.split.tp
    elements = 0
    for layer in model.layers:
        elements += 8 * model.hidden_size
        part = layer.feed_forward
        if isinstance(part, Dense):
            elements += (2 + part.gated) * part.intermediate_size // tp
        elif isinstance(part, Experts):
            elements += (2 + part.gated) * part.shared_intermediate_size // tp
        if isinstance(layer.mixer, Attention):
            elements += 3 * layer.mixer.width_on(tp)
    rate = 2 * elements / (kernels.device.bandwidth_bytes_per_s * STREAMED) * 1e6
    return lambda tokens: rate * tokens


def _ps(us: float) -> int:
    return round(us * PS_PER_US)


def _points(x: list[int], cost: Cost, count: float = 1) -> TimePoints:
    times = steady(x, [count * cost(each) for each in x])
    return TimePoints(list(x), [_ps(us) for us in times.tolist()])


def _sheet(count: float, lines: dict[int, KernelLine]) -> KernelSheet:
    return KernelSheet(
        list(lines),
        [
            TimePoints([round(x) for x in line.x], [_ps(count * us) for us in line.us])
            for line in lines.values()
        ],
    )


def _reach(lines: dict[int, KernelLine]) -> float:
    """The longest context of a single sequence that was measured."""
    return lines[min(lines)].x[-1]


def _longer(lines: dict[int, KernelLine]) -> dict[int, KernelLine]:
    """The curves, continued beyond their last points as a parabola through the last two."""
    return {batch: _continued(line) for batch, line in lines.items()}


def _continued(line: KernelLine) -> KernelLine:
    x, us = list(line.x), list(line.us)
    if len(x) < 2:
        return line
    (first, low), (last, high) = zip(x[-2:], us[-2:], strict=True)
    square = max(0.0, (high / last - low / first) / (last - first))
    straight = high / last - square * last
    while x[-1] < LONGEST:
        x.append(x[-1] * 2)
        us.append(straight * x[-1] + square * x[-1] ** 2)
    return KernelLine(tuple(x), tuple(us))
