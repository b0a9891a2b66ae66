"""Coding-agent sessions (github.com/callanjfox/kv-cache-tester): one JSON object for each session,
one on each line or a single one in the file.

Each request follows the answer to the session's previous request, after its `think_time`. Without
that key, the delay is the difference of both `t` minus the earlier `api_time`. Nested requests of
sub-agents follow the request that started them. The session continues when the last of them is
done. A session starts at its first `t`; `[workload.arrivals]` sets other start times.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import PositiveInt

from kvsim.plumbing.reading.files import Text
from kvsim.plumbing.reading.json_text import JsonError, loads
from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.text import json_object, scaled_time, whole_number
from kvsim.workload.traces.format import DELAYS, HASHES, SESSIONS, HashedFormat, UncheckedRows
from kvsim.workload.traces.line import Line, json_lines
from kvsim.workload.traces.record import Trace, TraceRow
from kvsim.workload.traces.units import decimal_text


class AgentSessions(HashedFormat):
    """hash_block_tokens: tokens per hash id if a session has no block_size.

    Only complete blocks have ids. Ids are local to their session unless its hash_id_scope is
    "global".
    """

    needs = frozenset()
    carries = frozenset({HASHES, SESSIONS, DELAYS})
    chains_sessions = True
    complete_blocks_only = True
    example = '{"id": ..., "block_size": 64, "requests": [{"t": s, "in": tokens, "out": tokens, ...'
    hash_block_tokens: PositiveInt = 64

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """Recognised by a JSON object that has requests."""
        head = "".join(lines[:20])
        return (
            lines[0].lstrip().startswith("{") and '"requests"' in head and '"in"' in "".join(lines)
        )

    def read(self, text: Text) -> UncheckedRows:
        """Read the rows session by session."""
        return UncheckedRows(self._rows(text))

    def write(self, trace: Trace) -> Iterator[str]:
        """One line for each session, in the order of their first rows."""
        sessions: dict[str, list[TraceRow]] = {}
        for index, row in enumerate(trace.rows):
            name = f"{trace.name}/{index}" if row.session is None else row.session
            sessions.setdefault(name, []).append(row)
        block = trace.hash_block_tokens or self.hash_block_tokens
        for name, rows in sessions.items():
            head = f'"id": {json.dumps(name)}, "block_size": {block}, "hash_id_scope": "global"'
            yield "{" + f'{head}, "requests": [{", ".join(_requests(rows))}]' + "}"

    def _rows(self, text: Text) -> Iterator[TraceRow]:
        next_id = 0
        for line in _sessions(text):
            block = line.values.get("block_size", self.hash_block_tokens)
            if block != self.hash_block_tokens:
                what, usual = "a session with another block size", f"{self.hash_block_tokens}"
                raise line.error(what, block, usual, "set hash_block_tokens")
            name, shared = str(line.required("id")), line.get("hash_id_scope") == "global"
            reader = _Session(line, name, block, 0 if shared else next_id)
            yield from reader.rows(line.required("requests"), None)
            next_id = max(next_id, reader.largest_id + 1)


class _Done(NamedTuple):
    """The last request of a session so far: its id, its `t` and the duration of its answer."""

    id: str
    at_ps: int
    took_ps: int


class _Session:
    """Reads one session's requests, nested ones included."""

    def __init__(self, line: Line, name: str, block: int, first_id: int) -> None:
        self._line, self._name, self._block = line, name, block
        self._first_id = first_id
        self.largest_id = first_id - 1
        self._count = 0
        self.last: _Done | None = None

    def rows(self, requests: object, before: _Done | None) -> Iterator[TraceRow]:
        """The rows of a list of requests, the first following `before`; sets `last`."""
        if not isinstance(requests, list):
            raise self._line.error("requests is not a list", requests)
        for request in requests:
            if not isinstance(request, dict):
                raise self._line.error("a request is not an object", request)
            if "requests" in request:
                yield from self.rows(request["requests"], before)
                ended = self.last
                if ended is not None and (before is None or ended.at_ps >= before.at_ps):
                    before = ended
                continue
            row, before = self._row(request, before)
            yield row
        self.last = before

    def _row(self, request: dict[str, Any], before: _Done | None) -> tuple[TraceRow, _Done]:
        self._count += 1
        where = f"requests[{self._count}]"
        file, number = self._line.name, self._line.number
        line = Line(request, file, number)
        prompt = line.tokens("in")
        output = whole_number(request.get("out"), file, number, f"{where}.out", 0)
        at, think, took = (
            self._time(request, key, where) for key in ("t", "think_time", "api_time")
        )
        start = 0 if at is None else at
        if think is None and before is not None:
            if start < before.at_ps:
                raise line.error(f"{where}.t goes back", request.get("t"))
            think = start - before.at_ps - before.took_ps
        ids = line.hash_ids(prompt, self._block)
        if ids is not None:
            ids = tuple(self._first_id + local for local in ids)
            self.largest_id = max(self.largest_id, *ids, -1)
        name = f"{self._name}/{self._count}"
        row = TraceRow(
            number,
            start if before is None else None,
            prompt,
            output,
            ids,
            id=name,
            session=self._name,
            follows=None if before is None else before.id,
            delay_ps=0 if before is None else max(think or 0, 0),
        )
        return row, _Done(name, start, took or 0)

    def _time(self, request: dict[str, Any], key: str, where: str) -> int | None:
        value = request.get(key)
        if value is None:
            return None
        return scaled_time(value, PS_PER_S, self._line.name, self._line.number, f"{where}.{key}")


def _sessions(text: Text) -> Iterator[Line]:
    """The sessions of a file: one on each line, or the whole file as one object."""
    if len(text.lines) > 1 and not _complete(text.lines[0]):
        yield Line(json_object("\n".join(text.lines), text.name, 1), text.name, 1)
    else:
        yield from json_lines(text)


def _complete(line: str) -> bool:
    try:
        loads(line)
    except JsonError:
        return False
    return True


def _requests(rows: list[TraceRow]) -> Iterator[str]:
    """A session's rows as JSON objects; the delay of a later row is written as its think time."""
    at = 0
    for index, row in enumerate(rows):
        delay = row.delay_ps
        if row.arrival_ps is not None:
            # It may have come before the answer to the one it now follows.
            delay = max(row.arrival_ps - at, 0)
            at = max(row.arrival_ps, at)
        else:
            at += delay
        parts = [f'"t": {decimal_text(at, PS_PER_S)}']
        if index:
            parts.append(f'"think_time": {decimal_text(delay, PS_PER_S)}')
        parts += [f'"in": {row.prompt_tokens}', f'"out": {row.output_tokens}']
        if row.hash_ids is not None:
            parts.append(f'"hash_ids": {list(row.hash_ids)}')
        yield "{" + ", ".join(parts) + "}"
