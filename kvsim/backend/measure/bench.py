"""A decoder and a pool set up for measuring: any planned step, on any device."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import PCG64, Generator

from kvsim.backend.devices import device_of
from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.measure.grid import StepPlan
from kvsim.backend.shape import DTYPE_BYTES, Shape
from kvsim.backend.step import TokenSpan
from kvsim.backend.stores.pooled import StoreName, pooled_store
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.graphs import GraphSize
from kvsim.backend.transformer.runner import DecoderRunner


class Bench:
    """One decoder, one pool of random content. Blocks are dealt at random, no two spans share one;
    contiguous spans are adjacent.

    plans: those of the given ones that the device's free memory holds, once the weights are there,
    with their graphs;
    dropped: the others. Block 0 is unowned: padding rows of captured steps write there.
    """

    def __init__(
        self,
        shape: Shape,
        device: str,
        plans: Sequence[StepPlan],
        *,
        block_size: int,
        graphs: bool,
        seed: int,
        store: StoreName = "paged",
        attention: AttentionKind | None = None,
    ) -> None:
        self._device = device_of(device)
        self.decoder = Decoder(shape, device=device)
        self.plans = [
            plan for plan in plans if _bytes_of(shape, plan, block_size) <= self._room_bytes()
        ]
        self.dropped = [plan for plan in plans if plan not in set(self.plans)]
        # A span may leave most of its last block empty.
        num_blocks = 1 + max((_blocks_of(plan, block_size) for plan in self.plans), default=0)
        self.shape = shape
        self.block_size = block_size
        self.store = pooled_store(store, shape, num_blocks, block_size, device)
        self.store.pool.fill(seed)
        self.runner = DecoderRunner(self.decoder, self.store, attention)
        self._deal = 1 + Generator(PCG64(seed)).permutation(num_blocks - 1)
        if graphs:
            longest = max(span_tokens for plan in self.plans for span_tokens in _spans(plan))
            self.runner.with_graphs(longest, (_new_tokens(plan) for plan in self.plans))
            # Launch by launch their times would be of another kind than those of their like.
            self.dropped += [plan for plan in self.plans if self._refused(plan)]
            self.plans = [plan for plan in self.plans if plan not in set(self.dropped)]

    def _refused(self, plan: StepPlan) -> bool:
        """Whether the device had no memory for the plan's graph."""
        graphs = self.runner.graphs
        return graphs is not None and (
            GraphSize.holding(self.shape, _new_tokens(plan)) in graphs.refused
        )

    def _room_bytes(self) -> int:
        return self._device.free_bytes() - self._device.spare_bytes

    def work(self, plan: StepPlan) -> Callable[[], object]:
        """A function that runs the step once, to be timed.

        On a GPU tokens and tables are on the device before, as engines prepare a step while the
        last one runs. A step that a graph holds is replayed. On a CPU preparing is part of it.
        """
        spans = self.spans(plan)
        graph = self.runner.graphs and self.runner.graphs.find(spans)
        if graph:
            return graph.load(spans).replay
        if not self._device.captures:
            return lambda: self.runner.step(spans)
        prepared = self.runner.prepare(spans)
        return lambda: self.runner.run(prepared)

    def spans(self, plan: StepPlan) -> list[TokenSpan]:
        """The plan's spans, each with KV slots of its own; chunks first."""
        size = self.block_size
        shapes = [*plan.chunks, *((1, context - 1) for context in plan.contexts)]
        dealt, spans = 0, []
        for at, (new, prior) in enumerate(shapes):
            blocks = -(-(new + prior) // size)
            tokens = (np.arange(new) * 7919 + at) % self.shape.vocab
            table = self._deal[dealt : dealt + blocks]
            slot = dealt * size
            spans.append(TokenSpan(str(at), tokens.tolist(), prior, table.tolist(), slot))
            dealt += blocks
        return spans

    def give_up(self) -> None:
        """Release cached device memory after a step that ran out of it."""
        self._device.release_unused()

    def finish(self) -> None:
        """Wait until the device has finished all work."""
        self._device.synchronize()


def _new_tokens(plan: StepPlan) -> list[int]:
    return [*(new for new, _ in plan.chunks), *(1 for _ in plan.contexts)]


def _spans(plan: StepPlan) -> list[int]:
    """Tokens in the context of each span of a plan when the step is done."""
    return [*(new + prior for new, prior in plan.chunks), *plan.contexts]


def _blocks_of(plan: StepPlan, block_size: int) -> int:
    return sum(-(-tokens // block_size) for tokens in _spans(plan))


def _bytes_of(shape: Shape, plan: StepPlan, block_size: int) -> int:
    """Bytes of a step in addition to the weights: its KV cache, and twice its widest activation."""
    wide = 2 * shape.intermediate + 4 * shape.hidden + 3 * shape.heads * shape.head_dim
    element = DTYPE_BYTES[shape.dtype]
    activations = 2 * plan.step_tokens * wide * element
    logits = 2 * len(_spans(plan)) * shape.vocab * element
    cache = _blocks_of(plan, block_size) * block_size * shape.kv_bytes_per_token
    return cache + activations + logits
