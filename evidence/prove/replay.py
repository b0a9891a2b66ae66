"""Replay step records on a KV store, and compare all logits with recomputation without a cache."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from evidence.prove.recompute import RecomputeStore
from evidence.prove.step import Step
from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.step import TokenSpan
from kvsim.backend.stores.store import TensorStore
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.runner import DecoderRunner
from kvsim.plumbing.errors import InputError

TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "bfloat16": 6e-2, "float16": 6e-2}


@dataclass(frozen=True, slots=True)
class Equality:
    """How far cached logits are from recomputed ones.

    error: largest |cached - recomputed| over the largest |recomputed| of its row; NaN if memory was
    read that was never written. worst: the step and sequence with this error.
    """

    steps: int
    rows: int
    error: float
    tolerance: float
    worst: tuple[int, str] | None

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance; False for NaN."""
        return self.error <= self.tolerance


def replay(
    steps: Iterable[Step | Mapping[str, Any]],
    decoder: Decoder,
    store: TensorStore,
    attention: AttentionKind | None = None,
) -> Equality:
    """Run `steps` on `store`, and compare each span's last logits with recomputed ones.

    Recomputation runs a sequence from its first token in one piece, without a cache, after the last
    step. A sequence that begins with another one's cached tokens (a prefix hit, a fork) gives them
    in `prefixes`. InputError if a sequence has a gap, or other tokens than before.
    """
    runner = DecoderRunner(decoder, store, attention)
    histories: dict[str, list[int]] = {}
    rows: list[tuple[int, str, int, Tensor]] = []
    count = 0
    for count, record in enumerate(steps, 1):
        step = record if isinstance(record, Step) else Step.from_record(record)
        for span in step.spans:
            _remember(histories.setdefault(span.id, []), span, step.prefixes.get(span.id))
        logits = runner.step(step.spans, step.moves)
        rows += [
            (count, span.id, span.context, row)
            for span, row in zip(step.spans, logits, strict=True)
        ]
    ids = list(histories)
    recomputed = dict(zip(ids, _recompute(decoder, histories), strict=True))
    error, worst = 0.0, None
    for at, name, context, row in rows:
        exact = recomputed[name][context - 1]
        distance = float((row - exact).abs().max() / exact.abs().max())
        if not distance <= error:  # NaN counts as the largest of all
            error, worst = distance, (at, name)
            if distance != distance:
                break
    return Equality(count, len(rows), error, TOLERANCE[decoder.shape.dtype], worst)


def _remember(history: list[int], span: TokenSpan, prefix: Sequence[int] | None) -> None:
    if prefix is not None:
        _agree(history, span.id, 0, prefix)
    if span.start > len(history):
        raise InputError(
            f"sequence {span.id!r} starts after unknown tokens",
            value=span.start,
            limit=len(history),
            remedy="give the tokens it found in the cache as its prefix",
        )
    _agree(history, span.id, span.start, span.tokens)


def _agree(history: list[int], name: str, start: int, tokens: Sequence[int]) -> None:
    known = history[start : start + len(tokens)]
    if known != list(tokens[: len(known)]):
        raise InputError(f"sequence {name!r} comes with other tokens than before")
    history.extend(tokens[len(known) :])


def _recompute(decoder: Decoder, histories: Mapping[str, Sequence[int]]) -> list[Tensor]:
    # Never by the kernel under test.
    runner = DecoderRunner(decoder, RecomputeStore(), "gather")
    return [
        runner.all_logits([TokenSpan(name, tokens, 0)])[0] for name, tokens in histories.items()
    ]
