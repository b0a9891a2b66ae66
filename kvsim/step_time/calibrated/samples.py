"""Measured steps, read from a CSV (such as one made from an engine's log) or JSON lines.

CSV columns: kind (decode | prefill | mixed), prefill_tokens, prefill_prior_tokens, decode_seqs,
decode_context_tokens, seconds, and if known decode_context_max and source. A CSV row has at most
one prefill chunk; a JSON line may have several: `"chunks": [[new, prior], ...]` in place of the two
prefill columns. `kind` may be left out; if there, it must agree with the counts.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.csv_rows import header_of, records
from kvsim.plumbing.reading.files import Text, read_bytes, read_text, row_error
from kvsim.plumbing.reading.json_text import parse_object
from kvsim.step import Chunk, StepShape

Kind = Literal["decode", "prefill", "mixed"]
KINDS: tuple[Kind, ...] = ("decode", "prefill", "mixed")


def kind_of(shape: StepShape) -> Kind:
    """The kind of a step with at least one token: decode, prefill or mixed."""
    if not shape.chunks:
        return "decode"
    return "mixed" if shape.num_decode else "prefill"


class Sample(NamedTuple):
    """One measured step: its shape and how long it took (seconds, > 0)."""

    shape: StepShape
    seconds: float


class SampleRow(Options):
    """One sample as a file keeps it.

    seconds: the statistic that is fitted (a median, unless the method says otherwise);
    seconds_min, seconds_p90, repeats: the spread of what was measured, for the reader.
    source: which part of a grid or log the row comes from, for the reader.
    """

    kind: Kind | None = None
    prefill_tokens: NonNegativeInt = 0
    prefill_prior_tokens: NonNegativeInt = 0
    chunks: tuple[tuple[PositiveInt, NonNegativeInt], ...] = ()
    decode_seqs: NonNegativeInt = 0
    decode_context_tokens: NonNegativeInt = 0
    decode_context_max: NonNegativeInt = 0
    seconds: Annotated[float, Field(gt=0)]
    seconds_min: Annotated[float, Field(gt=0)] | None = None
    seconds_p90: Annotated[float, Field(gt=0)] | None = None
    repeats: PositiveInt | None = None
    source: str = ""

    @model_validator(mode="after")
    def _counts_agree(self) -> Self:
        if self.chunks and (self.prefill_tokens or self.prefill_prior_tokens):
            raise ValueError("give chunks or prefill_tokens and prefill_prior_tokens, not both")
        if self.prefill_prior_tokens and not self.prefill_tokens:
            raise ValueError("prefill_prior_tokens without prefill_tokens")
        seqs, context, most = self.decode_seqs, self.decode_context_tokens, self.decode_context_max
        if not (seqs or self.chunks or self.prefill_tokens):
            raise ValueError("a step without a token")
        if context < seqs or (context and not seqs):
            raise ValueError(
                f"decode_context_tokens {context} does not fit decode_seqs {seqs}: every decoding "
                "sequence attends to one token at least"
            )
        if most and not (most <= context <= most * seqs):
            raise ValueError(
                f"decode_context_max {most} does not fit {seqs} contexts that sum to {context}"
            )
        found = kind_of(self.sample().shape)
        if self.kind not in (None, found):
            raise ValueError(f"kind says {self.kind!r}, the counts say {found!r}")
        return self

    def sample(self) -> Sample:
        """The row as a Sample: its step shape and seconds."""
        chunks = tuple(Chunk(*chunk) for chunk in self.chunks)
        if self.prefill_tokens:
            chunks = (Chunk(self.prefill_tokens, self.prefill_prior_tokens),)
        shape = StepShape(
            chunks, self.decode_seqs, self.decode_context_tokens, self.decode_context_max
        )
        return Sample(shape, self.seconds)


class SampleSet(NamedTuple):
    """The samples of one file. sha256: of its bytes, so that a fit names what it came from."""

    name: str
    sha256: str
    rows: tuple[SampleRow, ...]

    def samples(self) -> list[Sample]:
        """The rows as Samples: their step shapes and seconds."""
        return [row.sample() for row in self.rows]


def read_samples(path: Path) -> SampleSet:
    """Read a .csv, or a .jsonl file; InputError names the first bad row."""
    text = read_text(path)
    tables = _json_lines(text, path) if ".jsonl" in path.suffixes else _csv_rows(text)
    rows = tuple(SampleRow.parse(table, f"{path}:{line}") for line, table in tables)
    if not rows:
        raise InputError("no samples", where=str(path), remedy="one row a measured step")
    return SampleSet(path.name, hashlib.sha256(read_bytes(path)).hexdigest(), rows)


def _csv_rows(text: Text) -> Iterator[tuple[int, Mapping[str, Any]]]:
    known = [name for name in SampleRow.model_fields if name != "chunks"]
    for column in header_of(text.lines[0]):
        if column not in known:
            remedy = f"known columns: {', '.join(known)}"
            raise row_error(text.name, 1, "unknown column", repr(column), remedy=remedy)
    return records(text)


def _json_lines(text: Text, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, content in enumerate(text.lines, 1):
        if content.strip():
            yield line, parse_object(content, f"{path}:{line}")
