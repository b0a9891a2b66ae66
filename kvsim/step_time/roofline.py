"""Roofline step time, from the model and the device alone.

A step is a sequence of kernels, each bound by what it computes or by what it moves:

    overhead + layers + all-reduces
    + max(bytes of the weights read, FLOPs of T tokens through the matrices)      all matrices
    + sum over decoding sequences of max(KV bytes, FLOPs) of their context         decode attention
    + sum over chunks of max(KV bytes of what they see, FLOPs of their pairs)      prefill attention

Peak rates times the efficiencies give the rates. Of a mixture of experts the step reads those that
T tokens meet when they are routed evenly: E * (1 - (1 - k/E)^T) of E experts with k for a token.
Sliding windows cap a chunk's pairs exactly. For decoding sequences only the sum S of the N contexts
is known. min(S, N * W) replaces the sum of min(context, W). It is exact while all are within the
window W or all beyond it, too large in between. A query of local attention sees its own chunk. That
is exact for prompts; it is half a chunk for each decoding sequence where the mean context is beyond
the first. KV writes and activations are left out. Compressed tokens (DeepSeek-V4) count as their
share of a row. A step reads the tokens that an indexer picks, and every key of the indexer. The
compressors' states are left out.

Where drafted tokens are verified, the step computes them too (matrices, logits, states), and each
reads its sequence's context again from the chip. Attention is the greater of the context's bytes,
once, and of the FLOPs of all its queries.
"""

from collections import Counter
from typing import ClassVar

from pydantic import Field

from kvsim.layout import KVGroup
from kvsim.model import Attention, Experts, LatentAttention, Model
from kvsim.plumbing.units import FS_PER_PS, PS_PER_S, PS_PER_US
from kvsim.step_time.options import Hardware, StepTimeOptions
from kvsim.step_time.roofline_form import AttentionTime, RooflineForm
from kvsim.support.parts import STAGES


class Roofline(StepTimeOptions):
    """memory_efficiency, compute_efficiency: of the device's peak bandwidth and FLOP/s.

    The defaults are typical of tuned kernels: weight reads at 0.85 to 0.9 of the peak bandwidth
    (Llama-3.1-8B on an RTX 4090: 0.89) and matrix products at 0.55 (A100) to 0.95 (RTX 4090).
    overhead_us: sampling and scheduling that a step does not hide. layer_us: time to start and end
    the kernels of a layer, in addition to the bytes and FLOPs. With 30 a batch of one of an 8B
    model on an H100 takes 6.5 ms. all_reduce_us: latency of one of the two all-reduces a layer has
    under tensor parallelism.

    layer_us and memory_efficiency come from vLLM decoding eight sequences steadily on H100s
    (github.com/ml-energy/leaderboard, 0cd52da). A step of Qwen3-32B takes 25.2 ms on one GPU and
    15.1 ms on two. 0.848 of the bandwidth and 31 us a layer explain both. Llama-3.1-70B on four
    GPUs then has 29 us a layer. Layers of experts take longer than this model says.
    """

    serves: ClassVar[frozenset[str]] = frozenset((STAGES,))

    memory_efficiency: float = Field(default=0.85, gt=0, le=1)
    compute_efficiency: float = Field(default=0.7, gt=0, le=1)
    overhead_us: float = Field(default=300.0, gt=0)
    layer_us: float = Field(default=30.0, ge=0)
    all_reduce_us: float = Field(default=10.0, ge=0)

    def build(self, hardware: Hardware) -> "RooflineForm":
        """The form for this hardware; InputError if the model cannot be split so."""
        model, device, tp = hardware.model, hardware.device, hardware.tensor_parallel_size
        layout = hardware.layout or model.kv_layout(tensor_parallel_size=tp)
        dtype_bits = model.weight_format.plain(model.torch_dtype).other_bits
        stored_bits = model.weight_format.linear_bits
        peak = device.flops(8 if stored_bits == 8 else dtype_bits)
        ps_per_byte = PS_PER_S / (device.bandwidth_bytes_per_s * self.memory_efficiency)
        ps_per_flop = PS_PER_S / (peak * self.compute_efficiency)
        ps_per_attention_flop = PS_PER_S / (device.flops(dtype_bits) * self.compute_efficiency)

        groups = []
        for group in layout.groups:
            seen = group.window_tokens if group.reading is None else group.reading.tokens
            if group.kind == "recurrent" or seen == 0:
                continue
            for local, token_bytes in _bytes_by_chunk(model, group).items():
                prefill, decode = _attention_flops(model, group, local)
                read_ps, query_ps = token_bytes * ps_per_byte, decode / tp
                query_ps *= ps_per_attention_flop
                groups.append(
                    AttentionTime(
                        window_tokens=seen,
                        context_ps=round(max(read_ps, query_ps)),
                        query_fs=round(FS_PER_PS * query_ps),
                        read_fs=round(FS_PER_PS * token_bytes * ps_per_byte),
                        pair_fs=round(FS_PER_PS * prefill / tp * ps_per_attention_flop),
                        attention_chunk=local,
                    )
                )
        state_bytes = sum(group.state_bytes for group in layout.groups)
        all_reduces = 2 * model.num_layers if tp > 1 else 0
        reduced = 2 * (tp - 1) / tp * model.hidden_size * dtype_bits / 8
        return RooflineForm(
            base_ps=round(
                (
                    self.overhead_us
                    + model.num_layers * self.layer_us
                    + all_reduces * self.all_reduce_us
                )
                * PS_PER_US
            ),
            weights_ps=round(_shared_bytes(model, tp) * ps_per_byte),
            experts=_expert_reads(model, tp, hardware.data_parallel_size, ps_per_byte),
            token_ps=round(model.matmul_flops_per_token / tp * ps_per_flop),
            logits_ps=round(model.logits_flops / tp * ps_per_flop),
            state_ps=round(2 * state_bytes * ps_per_byte),
            all_reduce_token_ps=round(all_reduces * reduced * PS_PER_S / device.peer_bytes_per_s),
            attention=tuple(groups),
        )


def _shared_bytes(model: Model, tp: int) -> int:
    """Weight bytes that every step reads on one GPU: all but routed experts and the embedding."""
    weights, stored = model.weights(tp), model.weight_format
    embedding = 0 if model.tie_word_embeddings else model.vocab_size * model.hidden_size // tp
    bits = weights.linear * stored.linear_bits + (weights.other - embedding) * stored.other_bits
    return round(bits / 8)


def _expert_reads(
    model: Model, tp: int, copies: int, ps_per_byte: float
) -> tuple[tuple[float, int], ...]:
    """For each kind of expert layer: the chance that a token of each copy of the attention misses
    an expert.

    With it the time of reading all experts of a GPU in all such layers.
    """
    elements: dict[float, int] = {}
    for layer in model.layers:
        part = layer.feed_forward
        if isinstance(part, Experts):
            miss = (1 - part.experts_per_token / part.num_experts) ** copies
            size = part.weights(model.hidden_size, tp).expert // copies
            elements[miss] = elements.get(miss, 0) + size
    bytes_per_element = model.weight_format.expert_bits / 8
    return tuple(
        (miss, round(count * bytes_per_element * ps_per_byte)) for miss, count in elements.items()
    )


def _bytes_by_chunk(model: Model, group: KVGroup) -> dict[int | None, int]:
    """KV bytes of a token in this group's layers, by their chunk of local attention (None without).

    A group of a layout that keeps all chunks has layers of both kinds, each with as many bytes.
    """
    if group.reading is not None:
        return {None: group.bytes_per_token}
    chunks = Counter(
        layer.mixer.chunk_tokens
        for layer in model.layers
        if isinstance(layer.mixer, Attention)
        and layer.mixer.window_tokens == group.window_tokens
        and (group.chunk_tokens is None or layer.mixer.chunk_tokens == group.chunk_tokens)
        and group.kind != "mla"
    )
    del chunks[None]
    found: dict[int | None, int] = {
        chunk: group.bytes_per_token * min(count, group.layers) // group.layers
        for chunk, count in chunks.items()
    }
    rest = group.bytes_per_token - sum(found.values())
    return {None: rest, **found} if rest or not found else found


def _attention_flops(model: Model, group: KVGroup, local: int | None) -> tuple[int, int]:
    """(prefill, decode) FLOPs of one query-key pair, summed over layers of this group with local
    attention chunks of `local` tokens; None: layers without chunks.
    """
    if group.reading is not None:
        each = group.layers * group.reading.pair_flops
        return each, each
    prefill = decode = 0
    for layer in model.layers:
        mixer = layer.mixer
        if isinstance(mixer, LatentAttention):
            inside = group.kind == "mla"
        elif isinstance(mixer, Attention):
            inside = group.kind != "mla" and mixer.window_tokens == group.window_tokens
            inside = inside and mixer.chunk_tokens == local
        else:
            continue
        if inside:
            prefill += mixer.prefill_flops_per_pair()
            decode += mixer.decode_flops_per_pair()
    return prefill, decode
