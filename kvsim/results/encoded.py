"""Summarise multimodal items and adapters of requests."""

from typing import TYPE_CHECKING

import numpy as np

from kvsim.plumbing.units import PS_PER_S
from kvsim.results.recorder import Recorder

if TYPE_CHECKING:
    from kvsim.engine.limits.limit import ChunkLimits
    from kvsim.results.summary_beyond import AdaptersSummary, EncoderSummary


def encoder_summary(limits: "ChunkLimits") -> "EncoderSummary | None":
    """The summary of the multimodal encoder; None if no prompt had items."""
    counts = limits.encoder_counts()
    if counts is None:
        return None
    from kvsim.results.summary_beyond import EncoderSummary  # few runs have items

    return EncoderSummary(**counts._asdict())


def adapters_summary(limits: "ChunkLimits", recorder: Recorder) -> "AdaptersSummary | None":
    """The summary of LoRA adapter loading; None if no request used an adapter."""
    counts = limits.adapter_counts()
    if counts is None:
        return None
    from kvsim.results.summary_beyond import AdaptersSummary  # few runs have adapters

    done = recorder.finished
    delayed = np.array([name in counts.delayed for name in done.ids], dtype=bool)
    waited = (done.column("first_scheduled_ps") - done.column("arrival_ps"))[delayed]
    return AdaptersSummary(
        activated=counts.activated,
        read=counts.read,
        delayed=len(counts.delayed),
        delay_s=float(waited.mean()) / PS_PER_S if len(waited) else None,
    )
