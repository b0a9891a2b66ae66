"""A decoder and a pool set up for measuring: any planned step, on any device."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.random import PCG64, Generator

from kvsim.backend.measure.grid import StepPlan
from kvsim.backend.shape import Shape
from kvsim.backend.step import Span
from kvsim.backend.stores.contiguous import ContiguousStore
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.runner import Runner

StoreName = Literal["paged", "contiguous"]


class Bench:
    """One decoder, one pool of random content. Blocks are dealt at random, no two spans share one;
    contiguous spans stand side by side.

    Block 0 is nobody's: padding rows of captured graphs (of a paged store alone) write there.
    """

    def __init__(
        self,
        shape: Shape,
        device: str,
        *,
        pool_tokens: int,
        most_spans: int,
        max_context: int,
        block_size: int,
        graphs: bool,
        seed: int,
        store: StoreName = "paged",
    ) -> None:
        # A span may leave most of its last block empty.
        num_blocks = 1 + pool_tokens // block_size + most_spans
        self.shape = shape
        self.device = device
        self.max_context = max_context
        self.graphs = graphs and store == "paged" and device.startswith("cuda")
        self.decoder = Decoder(shape, device=device)
        self.block_size = block_size
        self.store: PagedStore | ContiguousStore
        if store == "paged":
            self.store = PagedStore(shape, num_blocks, block_size, device)
        else:
            self.store = ContiguousStore(shape, num_blocks * block_size, device)
        self.store.pool.fill(seed)
        self.runner = Runner(self.decoder, self.store)
        self._deal = 1 + Generator(PCG64(seed)).permutation(num_blocks - 1)
        self._captured: dict[int, Any] = {}

    def work(self, plan: StepPlan) -> Callable[[], object]:
        """What one run of the step is, to be timed.

        On a GPU tokens and tables are on the device before (engines prepare a step while the last
        one runs), and decode steps are replayed graphs where these are asked for. On a CPU
        preparing a step is part of it.
        """
        spans = self.spans(plan)
        if not self.device.startswith("cuda"):
            return lambda: self.runner.step(spans)
        if self.graphs and plan.kind == "decode":
            assert isinstance(self.store, PagedStore)
            from kvsim.backend.transformer.graphs import DecodeGraph, capture_size

            size = capture_size(len(spans))
            if size is not None:
                if size not in self._captured:
                    self._captured[size] = DecodeGraph(
                        self.decoder, self.store, size, self.max_context
                    )
                graph: DecodeGraph = self._captured[size]
                return graph.load(spans).replay
        prepared = self.runner.prepare(spans)
        return lambda: self.runner.run(prepared)

    def spans(self, plan: StepPlan) -> list[Span]:
        """The plan's spans, each in a place of its own; chunks first."""
        size = self.block_size
        shapes = [*plan.chunks, *((1, context - 1) for context in plan.contexts)]
        dealt, spans = 0, []
        for at, (new, prior) in enumerate(shapes):
            blocks = -(-(new + prior) // size)
            tokens = (np.arange(new) * 7919 + at) % self.shape.vocab
            table = self._deal[dealt : dealt + blocks]
            slot = dealt * size
            spans.append(Span(str(at), tokens.tolist(), prior, table.tolist(), slot))
            dealt += blocks
        return spans

    def finish(self) -> None:
        """Wait until the device is idle."""
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()
