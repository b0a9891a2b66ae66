"""Data classes of recorded traces, common to all file formats."""

from dataclasses import dataclass
from typing import NamedTuple

HashIds = tuple[int, ...]
TraceItems = tuple[tuple[int, int, str], ...]
LARGEST_ID = 1 << 62


class TraceRow(NamedTuple):
    """One recorded request.

    line: 1-based line of the file. prompt_tokens, output_tokens: lengths; >= 1 once checked.
    arrival_ps: on the file's own clock (a wall clock counts from its first row); None: the file
        holds lengths only, or the row follows another.
    hash_ids: ids of the prompt's blocks, equal ids where all tokens up to the block's end are
        equal. The tokens past the last id are private. None: nothing is known.
    id, session: as the file names the request and its conversation.
    follows, delay_ps: it came delay_ps after the request with this id had been answered.
    items: placeholders of images, sounds and videos in the prompt: (tokens before, tokens, name of
        the content). adapter: the LoRA adapter asked for, by name.
    labels: the format's own further columns, kept for writing them again.
    """

    line: int
    arrival_ps: int | None
    prompt_tokens: int
    output_tokens: int
    hash_ids: HashIds | None = None
    id: str | None = None
    session: str | None = None
    follows: str | None = None
    delay_ps: int = 0
    labels: tuple[str, ...] = ()
    items: TraceItems = ()
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """The checked rows of a file.

    format: the name of its format. hash_block_tokens: tokens per hash id (None: no hashes).
    origin_ps: the wall clock at time 0, in ps since 1970 (UTC), if the file has one. notes: changes
    made to the rows on reading.
    """

    name: str
    format: str
    rows: list[TraceRow]
    hash_block_tokens: int | None = None
    origin_ps: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def timed(self) -> bool:
        """Whether the file has arrival times."""
        return self.rows[0].arrival_ps is not None
