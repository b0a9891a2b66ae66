"""Qwen-Bailian (github.com/alibaba-edu/qwen-bailian-usagetraces-anon): conversations in seconds,
ids of 16-token blocks. Each record has its whole prompt and its real arrival time.
"""

import json
from collections.abc import Iterator

from pydantic import PositiveInt

from kvsim.plumbing.reading.files import Text
from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.traces.format import HASHES, SESSIONS, HashedFormat, UncheckedRows
from kvsim.workload.traces.line import first_objects, json_lines
from kvsim.workload.traces.record import Trace, TraceRow
from kvsim.workload.traces.units import decimal_text

KEYS = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length")
ROOT = -1


class QwenBailian(HashedFormat):
    """hash_block_tokens: tokens per hash id."""

    carries = frozenset({HASHES, SESSIONS})
    example = (
        '{"chat_id": 1, "parent_chat_id": -1, "timestamp": s, "input_length": tokens, '
        '"output_length": tokens, "type": "text", "turn": 1, "hash_ids": [...]}'
    )
    hash_block_tokens: PositiveInt = 16

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """Recognised by its keys."""
        records = first_objects(lines)
        return bool(records) and all(set(KEYS) <= set(record) for record in records)

    def read(self, text: Text) -> UncheckedRows:
        """The rows. session: the first chat of the conversation. labels: parent, type, turn."""
        return UncheckedRows(_rows(text, self.hash_block_tokens))

    def write(self, trace: Trace) -> Iterator[str]:
        """One line for each row. Rows from other formats are numbered; each row of a session has
        the previous one as its parent.
        """
        newest: dict[str, tuple[int, int]] = {}
        for index, row in enumerate(trace.rows):
            assert row.arrival_ps is not None
            if trace.format == "qwen-bailian":
                chat, (parent, kind, turn) = str(row.id), row.labels
            else:
                before = (ROOT, 0) if row.session is None else newest.get(row.session, (ROOT, 0))
                chat, parent, kind, turn = str(index), str(before[0]), "text", str(before[1] + 1)
                if row.session is not None:
                    newest[row.session] = (index, before[1] + 1)
            ids = [] if row.hash_ids is None else [f'"hash_ids": {list(row.hash_ids)}']
            inside = [
                f'"chat_id": {chat}',
                f'"parent_chat_id": {parent}',
                f'"timestamp": {decimal_text(row.arrival_ps, PS_PER_S)}',
                f'"input_length": {row.prompt_tokens}',
                f'"output_length": {row.output_tokens}',
                f'"type": {json.dumps(kind)}',
                f'"turn": {turn}',
                *ids,
            ]
            yield "{" + ", ".join(inside) + "}"


def _rows(text: Text, block_tokens: int) -> Iterator[TraceRow]:
    roots: dict[int, str] = {}
    for line in json_lines(text):
        chat, parent = line.number_of("chat_id"), line.number_of("parent_chat_id")
        root = roots[chat] = str(chat) if parent == ROOT else roots.get(parent, str(parent))
        prompt = line.tokens("input_length")
        turn = line.number_of("turn", 1)
        yield TraceRow(
            line.number,
            line.time("timestamp", PS_PER_S),
            prompt,
            line.tokens("output_length"),
            line.hash_ids(prompt, block_tokens),
            id=str(chat),
            session=root,
            labels=(str(parent), str(line.values.get("type", "text")), str(turn)),
        )
