"""The rows of logged_steps.csv: what a server's own log said of its steps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.csv_rows import records
from kvsim.plumbing.reading.files import read_text

FILE = "logged_steps.csv"


class LoggedStep(Options):
    """One line of a log about one step, or about the steps since the line before it.

    line: `iteration`, one step of vLLM (`--enable-logging-iteration-details`); `prefill`, one
    prompt step of SGLang; `decode`, SGLang's decode steps since its last such line. time_s: on the
    log's clock, from its first line with a time. rank: the engine's, of several. prefill_tokens:
    prompt tokens computed; cached_tokens: prompt tokens found in the prefix cache. decode_tokens:
    tokens generated, or computed again after a preemption. held_tokens: tokens in the pool.
    elapsed_ms: of the one step. tokens_per_s: as the line has them. kv_usage: a share of the pool.
    dummy: a step of a rank that only keeps step with others. None: not in the line.
    """

    line: Literal["iteration", "prefill", "decode"]
    number: NonNegativeInt | None = None
    time_s: NonNegativeFloat | None = None
    rank: str | None = None
    prefill_requests: NonNegativeInt | None = None
    prefill_tokens: NonNegativeInt | None = None
    cached_tokens: NonNegativeInt | None = None
    decode_requests: NonNegativeInt | None = None
    decode_tokens: NonNegativeInt | None = None
    queued_requests: NonNegativeInt | None = None
    held_tokens: NonNegativeInt | None = None
    elapsed_ms: NonNegativeFloat | None = None
    tokens_per_s: NonNegativeFloat | None = None
    kv_usage: Annotated[float, Field(ge=0, le=1)] | None = None
    cuda_graph: bool | None = None
    dummy: bool | None = None


def read_logged_steps(folder: Path) -> Iterator[LoggedStep]:
    """The steps in the folder of an observed run; none where it has no such file. InputError names
    the row that is wrong.
    """
    path = folder / FILE
    if path.is_file():
        for line, row in records(read_text(path)):
            yield LoggedStep.parse(row, f"{path}:{line}")
