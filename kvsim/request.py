"""The nouns that arrive: a request, and the stream of them.

Token content. Two requests share cached blocks only where their tokens are equal, so content is
kept as runs of consecutive token ids: `((start, length), ...)`. Content that no other request can
name stays `None` and costs nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

TokenRuns = tuple[tuple[int, int], ...]


class Request(NamedTuple):
    """One request as it arrives.

    id: unique in its stream.
    arrival_ps: when it arrives, in ps from the stream's start; ignored when `after` is set.
    prompt_tokens, output_tokens: exact lengths, both >= 1; the engine learns the second by doing.
    max_tokens: the output length the client declared (None: it declared none).
    ignore_eos: the client asked for all of them, as benchmarks do, and the engine knows it.
    front_end_ps: between client and engine, within arrival_ps or think_ps; latencies hold it.
    priority: lower runs first under a priority policy.
    n: parallel samples of the prompt.
    prompt_runs: the prompt's token ids as runs, lengths summing to prompt_tokens; None: private.
    output_start: token id of the first output token, the others follow; None: private.
    after, think_ps: arrives think_ps after the request with this id has left (closed loops,
        conversations).
    session: the conversation it belongs to, for reports.
    """

    id: str
    arrival_ps: int
    prompt_tokens: int
    output_tokens: int
    max_tokens: int | None = None
    priority: int = 0
    n: int = 1
    prompt_runs: TokenRuns | None = None
    output_start: int | None = None
    after: str | None = None
    think_ps: int = 0
    session: str | None = None
    ignore_eos: bool = False
    front_end_ps: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests in order of arrival (followers after the request they follow).

    notes: what was done to them on the way ("clipped 12 of 19,366 prompts to 4,096 tokens").
    source: what they came from, for provenance: name, sha256 of the file, seed and so on.
    max_concurrency: the clients send none while so many are in flight; None: no limit.
    """

    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()
    source: dict[str, str] = field(default_factory=dict)
    max_concurrency: int | None = None

    @classmethod
    def of(cls, requests: "Stream | Iterable[Request]") -> "Stream":
        """The stream itself, or one of these requests."""
        return requests if isinstance(requests, Stream) else cls(tuple(requests))

    @property
    def anonymous(self) -> bool:
        """Whether no request can name another's content, and each is one sequence."""
        return all(request.prompt_runs is None and request.n == 1 for request in self.requests)
