"""Compare steps captured as a CUDA graph with the same steps launched one by one."""

from collections.abc import Mapping, Sequence
from typing import Any

from evidence.prove.random_steps import LONGEST
from evidence.prove.replay import TOLERANCE, Equality
from evidence.prove.step import Step
from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.stores.store import TensorStore
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.runner import DecoderRunner


def compare_captured(
    records: Sequence[Mapping[str, Any]],
    decoder: Decoder,
    captured: TensorStore,
    launched: TensorStore,
    attention: AttentionKind | None = None,
) -> Equality:
    """Run the same records (of `random_steps`) on two empty stores of one kind, capturing every
    step on one of them.

    Returns the difference of their logits over the captured steps that were replayed. The error is
    NaN if no step was replayed, so that nothing was tested.
    """
    steps = [Step.from_record(record) for record in records]
    replaying = DecoderRunner(decoder, captured, attention)
    replaying.with_graphs(LONGEST, ([len(span.tokens) for span in step.spans] for step in steps))
    launching = DecoderRunner(decoder, launched, attention)
    error, worst, rows, count = 0.0, None, 0, 0
    for count, step in enumerate(steps, 1):
        before = replaying.graphs.num_replayed if replaying.graphs else 0
        found = replaying.step(step.spans, step.moves)
        exact = launching.step(step.spans, step.moves)
        if not replaying.graphs or replaying.graphs.num_replayed == before:
            continue
        rows += len(step.spans)
        distance = float((found - exact).abs().max() / exact.abs().max())
        if not distance <= error:
            error, worst = distance, (count, step.spans[0].id)
    tolerance = TOLERANCE[decoder.shape.dtype]
    return Equality(count, rows, error if rows else float("nan"), tolerance, worst)
