"""The rows of an observed run's tables: requests.csv and timeseries.csv."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PlainSerializer,
    PositiveInt,
    model_validator,
)

from kvsim.plumbing.options import Options
from kvsim.request import TokenRuns
from kvsim.workload.content import length_of


def _runs(text: object) -> object:
    """Parse `START+LENGTH ...` into (start, length) pairs."""
    if not isinstance(text, str):
        return text
    return tuple(tuple(map(int, run.split("+"))) for run in text.split())


def _text(runs: TokenRuns | None) -> str | None:
    if runs is None:
        return None
    return " ".join(f"{start}+{length}" for start, length in runs)


RunsText = Annotated[TokenRuns | None, BeforeValidator(_runs), PlainSerializer(_text)]


class ObservedRequest(Options):
    """One row of requests.csv. Times are in seconds from the first arrival.

    queued_s is when the engine took the request from its input queue (None: on arrival).
    scheduled_s is its first admission; it is for people. max_tokens is the output length that the
    client declared. cached_tokens counts prompt tokens found in the prefix cache at the first
    admission. prompt_runs has the prompt's token ids as `START+LENGTH ...`, and output_start is the
    first token id of the output. Where the recorder knew prompt_runs, they take precedence over the
    block ids in stream.jsonl.
    """

    id: str
    arrival_s: NonNegativeFloat
    prompt_tokens: PositiveInt
    output_tokens: PositiveInt
    queued_s: NonNegativeFloat | None = None
    scheduled_s: NonNegativeFloat | None = None
    first_token_s: NonNegativeFloat
    last_token_s: NonNegativeFloat
    priority: int = 0
    max_tokens: PositiveInt | None = None
    cached_tokens: NonNegativeInt | None = None
    prompt_runs: RunsText = None
    output_start: int | None = None

    @model_validator(mode="after")
    def _runs_are_the_prompt(self) -> Self:
        if self.prompt_runs is not None and length_of(self.prompt_runs) != self.prompt_tokens:
            raise ValueError("prompt_runs are not as long as prompt_tokens says")
        return self


class Tick(Options):
    """One row of timeseries.csv: the engine's last log record in [t - tick_seconds, t).

    prompt_throughput and gen_throughput are in tokens per second since the previous row. None: not
    recorded.
    """

    t: NonNegativeFloat
    prompt_throughput: NonNegativeFloat | None = None
    gen_throughput: NonNegativeFloat | None = None
    running: NonNegativeInt | None = None
    waiting: NonNegativeInt | None = None
    kv_cache_pct: Annotated[float, Field(ge=0, le=100)] | None = None


def recorded_ticks(
    ticks: Sequence[Tick], rows: Sequence[ObservedRequest], tick_seconds: float
) -> tuple[Tick, ...]:
    """The rows of timeseries.csv, without columns that are zero only because the logger did not
    know the value.

    While a request decodes, a sequence runs, the KV pool is in use and tokens are generated, so
    zeros in all rows are not measurements. The waiting queue may really have been empty all the
    time: its zeros are dropped only together with those of the running sequences. If the clock of
    the ticks may be one tick ahead, rows at the beginning and end of a request prove nothing.
    """
    busy = any(
        row.first_token_s + tick_seconds <= tick.t <= row.last_token_s - tick_seconds
        for row in rows
        for tick in ticks
    )
    if not busy:
        return tuple(ticks)
    unknown = {
        name: None
        for name in ("prompt_throughput", "gen_throughput", "running", "kv_cache_pct")
        if not any(getattr(tick, name) for tick in ticks)
    }
    if "running" in unknown and not any(tick.waiting for tick in ticks):
        unknown["waiting"] = None
    return tuple(tick.model_copy(update=unknown) for tick in ticks)
