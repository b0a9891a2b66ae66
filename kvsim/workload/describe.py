"""The description of a trace as one table of plain values."""

from collections.abc import Sequence
from typing import Any

from kvsim.workload.reuse import lru_curve, reuse
from kvsim.workload.statistics import arrival_statistics, length_statistics
from kvsim.workload.traces.record import Trace

LRU_BLOCKS = (1_000, 10_000, 30_000, 50_000)


def describe(trace: Trace, lru_blocks: Sequence[int] = LRU_BLOCKS) -> dict[str, Any]:
    """A trace's rows, arrivals, lengths, sessions and prefix reuse as a table; None for values that
    the trace does not have.

    lru_blocks: cache sizes for which to compute hit ratios, in the trace's own hash blocks.
    """
    arrivals = arrival_statistics(trace)
    sessions = {row.session for row in trace.rows if row.session is not None}
    return {
        "file": trace.name,
        "format": trace.format,
        "rows": len(trace.rows),
        "arrivals": None if arrivals is None else arrivals._asdict(),
        "prompt_tokens": length_statistics([row.prompt_tokens for row in trace.rows])._asdict(),
        "output_tokens": length_statistics([row.output_tokens for row in trace.rows])._asdict(),
        "sessions": len(sessions) or None,
        "reuse": None if trace.hash_block_tokens is None else _reuse(trace, lru_blocks),
        "notes": list(trace.notes),
    }


def _reuse(trace: Trace, lru_blocks: Sequence[int]) -> dict[str, Any]:
    curve = {str(blocks): ratio for blocks, ratio in lru_curve(trace, lru_blocks).items()}
    return {
        "hash_block_tokens": trace.hash_block_tokens,
        **reuse(trace)._asdict(),
        "lru_token_hit_ratio": curve,
    }
