"""Mooncake's fields, which several tools read and write, each with a block size of its own.

kvsim adds two. "items" are placeholders of images, sounds and videos as [tokens before, tokens,
name of the content]. "adapter" is the name of a LoRA adapter.
"""

import json
from collections.abc import Iterator
from typing import Any

from kvsim.plumbing.reading.files import Text
from kvsim.plumbing.units import PS_PER_MS
from kvsim.workload.traces.format import ADAPTERS, HASHES, ITEMS, HashedFormat, UncheckedRows
from kvsim.workload.traces.line import first_objects, json_lines
from kvsim.workload.traces.record import Trace, TraceRow
from kvsim.workload.traces.units import decimal_text

KEYS = '{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [...]}'


class MooncakeFields(HashedFormat):
    """One JSON record on each line, with its timestamp. hash_block_tokens: tokens per hash id."""

    carries = frozenset({HASHES, ITEMS, ADAPTERS})
    example = KEYS

    def read(self, text: Text) -> UncheckedRows:
        """Read one record from each line."""
        return UncheckedRows(self._rows(text))

    def write(self, trace: Trace) -> Iterator[str]:
        """Write one record to each line."""
        for row in trace.rows:
            assert row.arrival_ps is not None
            at = decimal_text(row.arrival_ps, PS_PER_MS)
            yield "{" + f'"timestamp": {at}, {fields(row)}{_special(row)}' + "}"

    def _rows(self, text: Text) -> Iterator[TraceRow]:
        for line in json_lines(text):
            time = line.time("timestamp", PS_PER_MS)
            prompt, output = line.tokens("input_length"), line.tokens("output_length")
            ids = line.hash_ids(prompt, self.hash_block_tokens)
            yield TraceRow(
                line.number,
                time,
                prompt,
                output,
                ids,
                items=line.items(prompt),
                adapter=line.adapter(),
            )


def looks_like(lines: list[str]) -> list[dict[str, Any]]:
    """The first records if all have Mooncake's fields, else []."""
    records = first_objects(lines)
    keys = {"timestamp", "input_length", "output_length"}
    return records if all(keys <= set(record) for record in records) else []


def fields(row: TraceRow) -> str:
    """The lengths and ids of a row, as the inside of a JSON object."""
    text = f'"input_length": {row.prompt_tokens}, "output_length": {row.output_tokens}'
    if row.hash_ids is not None:
        text += f', "hash_ids": {list(row.hash_ids)}'
    return text


def _special(row: TraceRow) -> str:
    """The items and the adapter of a row as JSON text, to be written after its other fields; "" if
    it has none.
    """
    items = f', "items": {json.dumps(row.items)}' if row.items else ""
    return items if row.adapter is None else f'{items}, "adapter": {json.dumps(row.adapter)}'
