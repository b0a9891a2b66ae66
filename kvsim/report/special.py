"""Sentences on the cost of multimodal inputs (images, audio, video) and of LoRA adapters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvsim.report import numbers
from kvsim.report.names import called
from kvsim.results.summary import RunSummary

if TYPE_CHECKING:
    from kvsim.results.summary_beyond import AdaptersSummary, EncoderSummary


def special(runs: Sequence[RunSummary]) -> list[str]:
    """Sentences for each run with multimodal prompts or LoRA adapters."""
    sentences: list[str] = []
    for run in runs:
        if run.encoder is not None:
            sentences.append(_encoded(called(run.label), run.encoder))
        if run.adapters is not None:
            sentences.append(_adapted(called(run.label), run.adapters))
    return sentences


def _encoded(label: str, found: "EncoderSummary") -> str:
    return (
        f"{label} encoded {numbers.plural(found.encoded_items, 'item')} of prompts "
        f"({numbers.plural(found.encoded_tokens, 'embedding')}) and found "
        f"{numbers.count(found.found_items)} in the encoder cache."
    )


def _adapted(label: str, found: "AdaptersSummary") -> str:
    loaded = (
        f"{label} copied an adapter to the device {numbers.plural(found.activated, 'time')} and "
        f"read one into host memory {numbers.plural(found.read, 'time')}"
    )
    if not found.delayed or found.delay_s is None:
        return f"{loaded}; no request waited for a slot."
    return (
        f"{loaded}; {numbers.plural(found.delayed, 'sequence')} waited for a slot, and started "
        f"{numbers.seconds(found.delay_s)} after arrival on average."
    )
