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
    """`START+LENGTH ...` as pairs of numbers."""
    if not isinstance(text, str):
        return text
    return tuple(tuple(map(int, run.split("+"))) for run in text.split())


def _text(runs: TokenRuns | None) -> str | None:
    if runs is None:
        return None
    return " ".join(f"{start}+{length}" for start, length in runs)


RunsText = Annotated[TokenRuns | None, BeforeValidator(_runs), PlainSerializer(_text)]


class ObservedRequest(Options):
    """One row of requests.csv, in seconds from the first arrival.

    queued_s: when the engine took it from its input queue (None: on arrival); scheduled_s: its
    first admission, for the reader. max_tokens: the output length its client declared.
    cached_tokens: of the prompt, those found in the prefix cache when it was first admitted.
    prompt_runs: the prompt's token ids, `START+LENGTH ...`, and output_start: the first one of its
    output, if the recorder knew them. They take precedence over the ids of blocks in stream.jsonl.
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
    """One row of timeseries.csv: the last record of the engine in [t - tick_seconds, t).

    prompt_throughput, gen_throughput: tokens a second since the row before. None: not recorded.
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
    """The ticks without columns of zeros, which a logger writes for what it does not know.

    The queue may have been empty all the time; but while a request decodes, a sequence runs, the
    pool holds something, and tokens come. If the clock of ticks may be a tick ahead, they prove
    nothing at a request's edges.
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
