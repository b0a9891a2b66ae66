"""From what the recorder wrote down to one entry of summary.json's `runs`."""

from typing import Any, Protocol

from kvsim.memory.ledger import CLASSES
from kvsim.memory.parts import PARTS
from kvsim.plumbing.units import PS_PER_S
from kvsim.results.departures import Departures
from kvsim.results.gaps import Gaps
from kvsim.results.latency import QUANTILES
from kvsim.results.recorder import Recorder


def latencies(recorder: Recorder) -> dict[str, dict[str, float | None]]:
    """ttft_s, tpot_s, itl_s, e2e_s and queue_s of the finished sequences; None where undefined.

    itl: all gaps between tokens; the others as in `kvsim.results.latency`.
    """
    done = Departures.of(recorder).latencies()
    gaps = Gaps(recorder.gaps, recorder.late_gaps)
    itl: dict[str, float | None] = dict.fromkeys(("mean", *QUANTILES))
    if gaps.num:
        found = [gaps.mean_ps(), *gaps.quantiles_ps(QUANTILES.values())]
        itl = {name: gap_ps / PS_PER_S for name, gap_ps in zip(itl, found, strict=True)}
    return {"ttft_s": done["ttft_s"], "tpot_s": done["tpot_s"], "itl_s": itl,
            "e2e_s": done["e2e_s"], "queue_s": done["queue_s"]}  # fmt: skip


def memory(
    recorder: Recorder,
    token_bytes: int,
    *,
    shares: bool,
    pads_blocks: bool = False,
    tells_cached: bool = False,
) -> dict[str, Any]:
    """The ledger's means as fractions of the capacity, and its peaks; what sharing saved, unless
    the allocator did not follow it (shares). parts: of these means over time, what has a name of
    its own (see kvsim.memory.parts), and `block_padding`, all of rounding where `pads_blocks`, and
    `cached_prompts`, the rest of what is cached where the allocator tells why it is.
    """
    capacity = recorder.capacity_bytes
    whole = capacity * recorder.total_ps
    sums = dict(zip(CLASSES, recorder.time_sum, strict=True))
    parts = dict(zip(PARTS, recorder.part_sums, strict=True))
    if pads_blocks:
        parts["block_padding"] = sums["rounding"]
    if tells_cached:
        others = (total for name, total in parts.items() if name.startswith("cached_"))
        parts["cached_prompts"] = sums["cached"] - sum(others)
    return {
        "capacity_bytes": capacity,
        "capacity_tokens": capacity // token_bytes,
        "time_mean": _shares(recorder.time_sum, capacity * recorder.total_ps),
        "parts": {name: total / whole for name, total in parts.items() if total},
        "step_mean": _shares(recorder.step_sum, capacity * recorder.steps),
        "peak_used": recorder.peak_used / capacity,
        "peak_allocated": recorder.peak_allocated / capacity,
        "sharing_savings": _savings(recorder) if shares else None,
    }


class Verified(Protocol):
    """What became of drafts."""

    num_verifications: int
    num_drafts: int
    num_accepted: int


def speculation(recorder: Recorder, verified: Verified) -> dict[str, Any]:
    """What drafting did: drafts of the steps that verified some, and of the pool the share that was
    held for drafts and not used (in the ledger a part of `reserved` and `overprovisioned`).

    acceptance_rate: accepted / drafted; mean_acceptance_length: tokens that a verification put out,
    one of which it would have without drafts (None: nothing was verified).
    """
    count, drafts = verified.num_verifications, verified.num_drafts
    whole = recorder.capacity_bytes * recorder.total_ps
    return {
        "verifications": count,
        "draft_tokens": drafts,
        "accepted_tokens": verified.num_accepted,
        "acceptance_rate": verified.num_accepted / drafts if drafts else None,
        "mean_acceptance_length": 1 + verified.num_accepted / count if count else None,
        "draft_slots": recorder.part_sums[PARTS.index("draft_slots")] / whole if whole else 0.0,
    }


def _savings(recorder: Recorder) -> float:
    """1 - physical / logical: of what sequences hold, counted for each, how much they share."""
    physical = sum(
        total
        for name, total in zip(CLASSES, recorder.time_sum, strict=True)
        if name in ("used", "reserved", "overprovisioned", "rounding")
    )
    logical = physical + recorder.saved_sum
    return recorder.saved_sum / logical if logical else 0.0


def _shares(sums: list[int], whole: int) -> dict[str, float]:
    """Each class's share; without any time all is idle, as the pool was."""
    if not whole:
        return {name: float(name == "idle") for name in CLASSES}
    return {name: total / whole for name, total in zip(CLASSES, sums, strict=True)}
