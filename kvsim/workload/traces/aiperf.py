"""AIPerf's mooncake_trace (github.com/ai-dynamo/aiperf): Mooncake's fields, sessions, delays.

The first record of a session has a timestamp. A later one has either a timestamp, or a `delay` in
milliseconds after the answer to the session's previous record. Each record's input_length is taken
as its whole prompt.
"""

import json
from collections.abc import Iterator

from pydantic import PositiveInt

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import Text
from kvsim.plumbing.units import PS_PER_MS
from kvsim.workload.traces import mooncake_fields
from kvsim.workload.traces.format import DELAYS, HASHES, SESSIONS, HashedFormat, UncheckedRows
from kvsim.workload.traces.line import Line, first_objects, json_lines
from kvsim.workload.traces.record import Trace, TraceRow
from kvsim.workload.traces.units import decimal_text


class AIPerfTrace(HashedFormat):
    """hash_block_tokens: tokens per hash id."""

    needs = frozenset()
    carries = frozenset({HASHES, SESSIONS, DELAYS})
    example = '{"session_id": ..., "delay": ms, ' + mooncake_fields.KEYS[1:]
    hash_block_tokens: PositiveInt = 512

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """Recognised by its keys: a session or a delay, in addition to the lengths."""
        records = first_objects(lines)
        lengths = {"input_length", "output_length"}
        return bool(records) and all(
            lengths <= set(record) and ("session_id" in record or "delay" in record)
            for record in records
        )

    def read(self, text: Text) -> UncheckedRows:
        """Read one record from each line."""
        return UncheckedRows(_rows(text, self.hash_block_tokens))

    def write(self, trace: Trace) -> Iterator[str]:
        """One line for each row. InputError unless a row that follows another comes after the last
        row of its session.
        """
        newest: dict[str, str | None] = {}
        for row in trace.rows:
            parts = []
            if row.session is not None:
                parts.append(f'"session_id": {json.dumps(row.session)}')
            if row.follows is not None:
                if row.session is None or newest.get(row.session) != row.follows:
                    raise InputError(
                        "the aiperf format can only follow the session's row before",
                        where=f"source line {row.line}",
                    )
                parts.append(f'"delay": {decimal_text(row.delay_ps, PS_PER_MS)}')
            elif row.arrival_ps is not None:
                parts.append(f'"timestamp": {decimal_text(row.arrival_ps, PS_PER_MS)}')
            if row.session is not None:
                newest[row.session] = row.id
            yield "{" + ", ".join([*parts, mooncake_fields.fields(row)]) + "}"


def _rows(text: Text, block_tokens: int) -> Iterator[TraceRow]:
    newest: dict[str, str] = {}
    for line in json_lines(text):
        name, session = f"r{line.number}", _session(line)
        follows = None if session is None else newest.get(session)
        timed, delayed = line.get("timestamp") is not None, bool(line.get("delay"))
        if timed and delayed:
            raise line.error("a record has a timestamp or a delay, not both")
        if follows is None and delayed:
            raise line.error("a delay, but no record of its session before it")
        if session is not None:
            newest[session] = name
        prompt = line.tokens("input_length")
        yield TraceRow(
            line.number,
            line.time("timestamp", PS_PER_MS) if timed else None,
            prompt,
            line.tokens("output_length"),
            line.hash_ids(prompt, block_tokens),
            id=name,
            session=session,
            follows=None if timed else follows,
            delay_ps=line.time("delay", PS_PER_MS) if delayed else 0,
        )


def _session(line: Line) -> str | None:
    session = line.get("session_id")
    if session is None or isinstance(session, str):
        return session
    if type(session) is int:
        return str(session)
    raise line.error("session_id is not a name", session)
