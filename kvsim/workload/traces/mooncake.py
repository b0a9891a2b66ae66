"""Mooncake (github.com/kvcache-ai/Mooncake): milliseconds, lengths, ids of 512-token blocks."""

from collections.abc import Iterator

from pydantic import PositiveInt

from kvsim.plumbing.reading.files import Text
from kvsim.workload.traces import mooncake_fields
from kvsim.workload.traces.format import HASHES, HashedFormat, UncheckedRows
from kvsim.workload.traces.record import Trace


class Mooncake(HashedFormat):
    """hash_block_tokens: tokens per hash id."""

    carries = frozenset({HASHES})
    example = mooncake_fields.KEYS
    hash_block_tokens: PositiveInt = 512

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """By its keys, whatever the block size: a wrong one is then found by its row."""
        return bool(mooncake_fields.looks_like(lines))

    def read(self, text: Text) -> UncheckedRows:
        """One record a line."""
        return UncheckedRows(mooncake_fields.rows(text, self.hash_block_tokens))

    def write(self, trace: Trace) -> Iterator[str]:
        """One record a line."""
        return mooncake_fields.lines(trace)
