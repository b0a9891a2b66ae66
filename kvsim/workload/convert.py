"""Convert a trace to another format; content that the format cannot hold is refused or noted."""

from dataclasses import replace

from kvsim.plumbing.errors import InputError
from kvsim.workload.blocks import rehash
from kvsim.workload.traces import TRACE_FORMATS
from kvsim.workload.traces.format import (
    ADAPTERS,
    DELAYS,
    HASHES,
    ITEMS,
    SESSIONS,
    TIMES,
    HashedFormat,
    TraceFormat,
)
from kvsim.workload.traces.record import Trace


def convert(
    trace: Trace, format: str, hash_block_tokens: int | None = None
) -> tuple[list[str], list[str]]:
    """Convert a trace; returns (lines of the file, notes on information lost).

    hash_block_tokens: the block size to write. Default: the trace's own if it is written in its own
    format, else the usual one of the new format. InputError if the new format needs a value that is
    missing, or cannot hold one at all.
    """
    writer = _writer(trace, format, hash_block_tokens)
    if TIMES in writer.needs and not trace.timed:
        raise InputError(
            f"the {format} format needs arrival times, and the trace has none", where=trace.name
        )
    followers = sum(row.follows is not None for row in trace.rows)
    if followers and DELAYS not in writer.carries:
        raise InputError(
            f"the {format} format cannot say that a row follows another's answer",
            where=trace.name,
            value=f"{followers:,} such rows",
        )
    lost = _lost(trace, format, writer)
    if trace.hash_block_tokens is not None and isinstance(writer, HashedFormat):
        rows = rehash(
            trace.rows,
            trace.hash_block_tokens,
            writer.hash_block_tokens,
            complete_only=writer.complete_blocks_only,
        )
        if writer.hash_block_tokens > trace.hash_block_tokens:
            lost.append(f"sharing that ends within a block of {writer.hash_block_tokens} tokens")
        trace = replace(trace, rows=rows, hash_block_tokens=writer.hash_block_tokens)
    return list(writer.write(trace)), lost


def _writer(trace: Trace, format: str, hash_block_tokens: int | None) -> TraceFormat:
    cls = TRACE_FORMATS.get(format, "--to")
    if hash_block_tokens is None and format == trace.format:
        hash_block_tokens = trace.hash_block_tokens
    if hash_block_tokens is None:
        return cls()
    if not issubclass(cls, HashedFormat):
        raise InputError(f"the {format} format has no hash ids", where="--to-hash-block-tokens")
    return cls.parse({"hash_block_tokens": hash_block_tokens}, "--to")


def _lost(trace: Trace, format: str, writer: TraceFormat) -> list[str]:
    lost = []
    if trace.hash_block_tokens is not None and HASHES not in writer.carries:
        lost.append(HASHES)
    if any(row.session is not None for row in trace.rows) and SESSIONS not in writer.carries:
        lost.append(SESSIONS)
    if any(row.items for row in trace.rows) and ITEMS not in writer.carries:
        lost.append(ITEMS)
    if any(row.adapter is not None for row in trace.rows) and ADAPTERS not in writer.carries:
        lost.append(ADAPTERS)
    if format != trace.format:
        if any(row.labels for row in trace.rows):
            lost.append(f"the {trace.format} format's own columns")
        if trace.origin_ps is not None:
            lost.append("the wall clock (times count from the first row)")
    if writer.chains_sessions and _times_within_sessions(trace):
        lost.append("arrival times within a session (they become think times)")
    return lost


def _times_within_sessions(trace: Trace) -> bool:
    begun: set[str] = set()
    for row in trace.rows:
        if row.session is not None and row.follows is None:
            if row.session in begun:
                return True
            begun.add(row.session)
    return False
