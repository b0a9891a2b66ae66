"""vLLM's `--dataset-name timed_trace`: Mooncake's fields, ids of 16-token blocks by default."""

from collections.abc import Iterator

from pydantic import PositiveInt

from kvsim.plumbing.reading.files import Text
from kvsim.workload.traces import mooncake_fields
from kvsim.workload.traces.format import HASHES, HashedFormat, UncheckedRows
from kvsim.workload.traces.record import Trace


class TimedTrace(HashedFormat):
    """hash_block_tokens: tokens per hash id."""

    carries = frozenset({HASHES})
    example = mooncake_fields.KEYS
    hash_block_tokens: PositiveInt = 16

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """By its keys, and a number of ids that blocks of 16 explain and blocks of 512 do not."""
        return (
            bool(mooncake_fields.looks_like(lines))
            and mooncake_fields.fits_blocks(lines, 16)
            and not mooncake_fields.fits_blocks(lines, 512)
        )

    def read(self, text: Text) -> UncheckedRows:
        """One record a line."""
        return UncheckedRows(mooncake_fields.rows(text, self.hash_block_tokens))

    def write(self, trace: Trace) -> Iterator[str]:
        """One record a line."""
        return mooncake_fields.lines(trace)
