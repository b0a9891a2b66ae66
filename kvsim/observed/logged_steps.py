"""The rows of logged_steps.csv: the engine steps that a server's own log reports."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.csv_rows import records
from kvsim.plumbing.reading.files import read_text

FILE = "logged_steps.csv"


class LoggedStep(Options):
    """One line of a log about one step, or about all steps since the previous line.

    line says which kind: `iteration`, one step of vLLM (`--enable-logging-iteration-details`);
    `prefill`, one prefill step of SGLang; `decode`, SGLang's decode steps since its previous such
    line.

    time_s counts from the log's first line with a time. rank is the engine's rank, where there are
    several. prefill_tokens counts computed prompt tokens, cached_tokens those found in the prefix
    cache, pending_tokens those of prompts that still wait. decode_tokens counts tokens generated,
    or recomputed after a preemption. held_tokens counts tokens in the KV pool. elapsed_ms is the
    duration of the one step. tokens_per_s is the rate in the line. kv_usage is a fraction of the
    KV pool. dummy marks a step in which a data-parallel rank without requests only follows the
    others. None: the line does not say.
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
    pending_tokens: NonNegativeInt | None = None
    held_tokens: NonNegativeInt | None = None
    elapsed_ms: NonNegativeFloat | None = None
    tokens_per_s: NonNegativeFloat | None = None
    kv_usage: Annotated[float, Field(ge=0, le=1)] | None = None
    cuda_graph: bool | None = None
    dummy: bool | None = None


def read_logged_steps(folder: Path) -> Iterator[LoggedStep]:
    """Read the logged steps of an observed run's folder; nothing if the folder has no such file.
    InputError gives the row that is wrong.
    """
    path = folder / FILE
    if path.is_file():
        for line, row in records(read_text(path)):
            yield LoggedStep.parse(row, f"{path}:{line}")
