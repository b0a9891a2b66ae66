"""A recorded schedule as input: engine settings, a cost in ticks, and requests.

The format is documented in docs/schedules.md; times are ticks of a virtual clock, kept here as
microseconds (any unit would do, only equality matters). What an engine's settings are, and what its
rows hold, is the part of `Case`'s subclasses, one for each engine that was recorded.
"""

from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar
from zlib import crc32

from pydantic import Field, model_validator

from kvsim.engine.replica import ReplicaSpec
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.json_text import read_object
from kvsim.request import Request, TokenRuns
from kvsim.validate.schedule.rows import Rows
from kvsim.validate.schedule.ticks import TICK_PS, CaseCost

LATEST = 10**12  # ticks: the last arrival
EXPECTED = (".expected.json.gz", ".expected.json")
MOST_TOKENS = 1 << 20  # of a prompt or a segment: 20 bits of a token's id are its place
Length = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
TokenId = Annotated[int, Field(ge=0)]


class CaseRequest(Options):
    """One request; its prompt as ids, as [segment, length] pieces, or as a private length."""

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
        """What it asked for, where the engine looks at it."""
        return None

    @property
    def asks_for_all(self) -> bool:
        """Whether it asked not to stop before."""
        return False

    def runs(self) -> TokenRuns:
        """The prompt's token ids as runs: token i of segment s is (crc32(s) << 20) | i."""
        if self.prompt_ids is not None:
            return tuple((token, 1) for token in self.prompt_ids)
        pieces = self.prompt or [(f"p:{self.id}", self.prompt_len or 0)]
        return tuple((crc32(name.encode()) << 20, length) for name, length in pieces)

    def names(self) -> list[str]:
        """What the rows call its n samples."""
        return [self.id] if self.n == 1 else [f"{sample}_{self.id}" for sample in range(self.n)]

    def requests(self) -> Iterator[Request]:
        """Its n samples, as the engine's front end submits them."""
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
                prompt_runs=runs,
                output_start=crc32((self.out_name or f"o:{name}").encode()) << 20,
            )


class Case(Options):
    """A recorded schedule's input; subclasses add `engine`, the settings.

    pool_key: the key of `engine` that sizes the pool; it tells which engine the case is of.
    """

    pool_key: ClassVar[str]

    name: str
    desc: str = ""
    cost: CaseCost
    requests: tuple[CaseRequest, ...]

    @model_validator(mode="after")
    def _each_name_once(self) -> "Case":
        names = [name for request in self.requests for name in request.names()]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise ValueError(f"two requests are named {twice!r}")
        return self

    def replica_spec(self) -> ReplicaSpec:
        """The engine that its settings make, one step at a time."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this

    def observer(self, by_step: deque[tuple[int, list[Request]]], *, stall_once: bool) -> Rows:
        """Who writes the rows that a recording of this engine has. by_step: see Rows. stall_once: a
        queue that cannot start is one row however many arrive behind it, else one an arrival.
        """
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this


def cases_in(path: Path) -> list[Path]:
    """The case, or of a folder those that have their recorded rows beside them, by name."""
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


def read_expectation(path: Path) -> list[dict[str, Any]]:
    """The recorded rows beside the case: NAME.expected.json.gz or NAME.expected.json."""
    for suffix in EXPECTED:
        beside = path.with_name(path.name.removesuffix(".json") + suffix)
        if beside.exists():
            steps = read_object(beside).get("steps")
            if not isinstance(steps, list) or not all(isinstance(row, dict) for row in steps):
                raise InputError("no list of rows under 'steps'", where=str(beside))
            return steps
    raise InputError(
        "no expectation beside the case",
        where=str(path),
        remedy=f"expected {path.name.removesuffix('.json')}.expected.json.gz in the same folder",
    )
