"""Mooncake's fields, which several tools read and write, each with a block size of its own."""

from collections.abc import Iterator
from typing import Any

from kvsim.plumbing.reading.files import Text
from kvsim.plumbing.units import PS_PER_MS
from kvsim.workload.text import scaled_time
from kvsim.workload.traces.json_lines import (
    first_objects,
    fits,
    hash_ids,
    length,
    numbered_objects,
    required,
)
from kvsim.workload.traces.record import Trace, TraceRow
from kvsim.workload.traces.units import decimal_text

KEYS = '{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [...]}'


def looks_like(lines: list[str]) -> list[dict[str, Any]]:
    """The first records if all have Mooncake's fields, else []."""
    records = first_objects(lines)
    keys = {"timestamp", "input_length", "output_length"}
    return records if all(keys <= set(record) for record in records) else []


def fits_blocks(lines: list[str], block_tokens: int) -> bool:
    """Whether the first records' hash ids are of blocks of so many tokens."""
    return fits(first_objects(lines), block_tokens)


def rows(text: Text, block_tokens: int) -> Iterator[TraceRow]:
    """Records with a timestamp each."""
    for line, record in numbered_objects(text):
        time = required(record, "timestamp", text.name, line)
        prompt = length(record, "input_length", text.name, line)
        yield TraceRow(
            line,
            scaled_time(time, PS_PER_MS, text.name, line, "timestamp"),
            prompt,
            length(record, "output_length", text.name, line),
            hash_ids(record.get("hash_ids"), prompt, block_tokens, text.name, line),
        )


def lines(trace: Trace) -> Iterator[str]:
    """The same rows as text."""
    for row in trace.rows:
        assert row.arrival_ps is not None
        yield "{" + f'"timestamp": {decimal_text(row.arrival_ps, PS_PER_MS)}, {fields(row)}' + "}"


def fields(row: TraceRow) -> str:
    """The lengths and ids of a row, as the inside of a JSON object."""
    text = f'"input_length": {row.prompt_tokens}, "output_length": {row.output_tokens}'
    if row.hash_ids is not None:
        text += f', "hash_ids": {list(row.hash_ids)}'
    return text
