"""A recorded schedule as input: engine settings, a step cost in ticks, and requests.

The format is documented in reports/schedules/README.md. Times are ticks of a virtual clock, stored
here as microseconds (only equality matters). A subclass of `Case` for each recorded engine defines
the engine's settings and the contents of its rows.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

from pydantic import Field, model_validator

from evidence.schedule.recording import EXPECTED, RecordedCase
from evidence.schedule.rows import Row, Rows
from evidence.schedule.ticks import TICK_PS, CaseCost, TickCost
from kvsim.engine.replica import ReplicaSpec, assemble
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.request import Request, Stream, TokenRuns
from kvsim.step_time.form import StepTime

LATEST = 10**12  # ticks: the last arrival
MOST_TOKENS = 1 << 20  # of a prompt or a segment: 20 bits of a token's id are its place
Length = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
TokenId = Annotated[int, Field(ge=0)]


class CaseRequest(Options):
    """One request. Its prompt is a list of token ids, a list of [segment, length] pieces, or a
    length with private contents.
    """

    id: str
    arrival: int | None = Field(None, ge=0, le=LATEST)
    arrival_step: int | None = Field(None, ge=0)
    prompt_ids: list[TokenId] | None = Field(None, min_length=1)
    prompt: list[tuple[str, Length]] | None = Field(None, min_length=1)
    prompt_len: Length | None = None
    out: Length
    priority: int = 0
    n: int = Field(1, ge=1, le=1000)
    out_name: str | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> "CaseRequest":
        if sum(given is not None for given in (self.prompt_ids, self.prompt, self.prompt_len)) != 1:
            raise ValueError("give one of prompt_ids, prompt and prompt_len")
        if (self.arrival is None) == (self.arrival_step is None):
            raise ValueError("give one of arrival and arrival_step")
        return self

    @property
    def declared_tokens(self) -> int | None:
        """The request's max_tokens, if the engine reads it."""
        return None

    @property
    def asks_for_all(self) -> bool:
        """Whether the request ignores stop tokens, so that it generates all max_tokens."""
        return False

    @property
    def routed_by(self) -> str | None:
        """The request's routing key, which is its session in kvsim."""
        return None

    def runs(self) -> TokenRuns:
        """The prompt's token ids as runs: token i of segment s is (crc32(s) << 20) | i."""
        if self.prompt_ids is not None:
            return tuple((token, 1) for token in self.prompt_ids)
        pieces = self.prompt or [(f"p:{self.id}", self.prompt_len or 0)]
        return tuple((crc32(name.encode()) << 20, length) for name, length in pieces)

    def names(self) -> list[str]:
        """Names of the request's n samples in the rows."""
        return [self.id] if self.n == 1 else [f"{sample}_{self.id}" for sample in range(self.n)]

    def requests(self) -> Iterator[Request]:
        """The request's n samples, as the engine's front end submits them."""
        runs = self.runs()
        for name in self.names():
            yield Request(
                id=name,
                arrival_ps=(self.arrival or 0) * TICK_PS,
                prompt_tokens=sum(length for _, length in runs),
                output_tokens=self.out,
                max_tokens=self.declared_tokens,
                ignore_eos=self.asks_for_all,
                priority=self.priority,
                session=self.routed_by,
                prompt_runs=runs,
                output_start=crc32((self.out_name or f"o:{name}").encode()) << 20,
            )


class Case(RecordedCase):
    """The input of a recorded schedule; subclasses add the field `engine` with its settings.

    recognised_by: key of `engine` that only this kind of case has (the size of the pool).
    """

    cost: CaseCost
    requests: tuple[CaseRequest, ...]

    @model_validator(mode="after")
    def _each_name_once(self) -> "Case":
        check_names(self.requests)
        return self

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        engine = table.get("engine")
        return isinstance(engine, Mapping) and cls.recognised_by in engine

    def simulated(self, recorded: list[Row]) -> list[Row]:
        return self.replayed(stall_once=_stalls_once(recorded))

    def replayed(self, *, stall_once: bool) -> list[Row]:
        """The rows that kvsim produces, one per step. stall_once: see `observer`."""
        timed, by_step = by_arrival(self.sent)
        observer = self.observer(by_step, stall_once=stall_once)
        replica = assemble(
            self.replica_spec(),
            Stream(tuple(timed)),
            self.step_time(),
            observer=observer,
            refuse=False,
        )
        observer.submit = replica.engine.submit
        replica.env.run()
        observer.close()
        return observer.rows

    @property
    def sent(self) -> Iterable[CaseRequest]:
        """The requests as the engine receives them."""
        return self.requests

    def step_time(self) -> StepTime:
        """The recorded cost of a step."""
        return TickCost(self.cost)

    def replica_spec(self) -> ReplicaSpec:
        """The engine with the recorded settings, running one step at a time."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this

    def observer(self, by_step: deque[tuple[int, list[Request]]], *, stall_once: bool) -> Rows:
        """The observer that writes rows in the form of this engine's recordings.

        by_step: see Rows. stall_once: a queue that cannot start gets one row even if further
        requests arrive; otherwise one row per arrival.
        """
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this


def check_names(requests: Iterable[CaseRequest]) -> None:
    """Raise ValueError if two requests have one name."""
    names = [name for request in requests for name in request.names()]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"two requests are named {twice!r}")


def check_of_two_engines(requests: Iterable[CaseRequest]) -> None:
    """Raise ValueError if two requests have one name, or if a request arrives by step number: two
    engines count steps separately.
    """
    requests = tuple(requests)
    check_names(requests)
    if any(request.arrival is None for request in requests):
        raise ValueError("two engines count steps apart: give arrival, not arrival_step")


def by_arrival(
    requests: Iterable[CaseRequest],
) -> tuple[list[Request], deque[tuple[int, list[Request]]]]:
    """(requests that arrive at a time, requests that arrive before a step by step number), in
    order.
    """
    by_step: dict[int, list[Request]] = {}
    timed: list[Request] = []
    for request in requests:
        if request.arrival_step is None:
            timed += request.requests()
        else:
            by_step.setdefault(request.arrival_step, []).extend(request.requests())
    timed.sort(key=lambda request: request.arrival_ps)
    return timed, deque(sorted(by_step.items()))


def cases_in(path: Path) -> list[Path]:
    """The case at this path, or all cases of a folder that have recorded rows, sorted by name."""
    if not path.is_dir():
        return [path]
    names = {file.name for file in path.iterdir()}
    cases = [
        path / name
        for name in sorted(names)
        if name.endswith(".json")
        and any(name.removesuffix(".json") + suffix in names for suffix in EXPECTED)
    ]
    if not cases:
        raise InputError(
            "no recorded case in this folder",
            where=str(path),
            limit=f"NAME.json, NAME{EXPECTED[0]}",
        )
    return cases


def read_expectation(path: Path) -> list[Row]:
    """The recorded rows of a case, from NAME.expected.json.gz or NAME.expected.json."""
    return RecordedCase.expected(path)


def _stalls_once(recorded: Sequence[Row]) -> bool:
    """Whether the recorder wrote one row for a queue that cannot start, not one per arrival.

    True if no two such rows follow each other, as then it makes no difference.
    """
    pairs = pairwise(recorded)
    return not any(row.get("stall") and later.get("stall") for row, later in pairs)
