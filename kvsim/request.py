"""A request, and a stream of requests in order of arrival.

Token content. Two requests share cached blocks only where their tokens are equal, so content is
kept as runs of consecutive token ids: `((start, length), ...)`. Content that no other request
shares is `None` and takes no memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

TokenRuns = tuple[tuple[int, int], ...]


class PromptItem(NamedTuple):
    """An image, a sound or a video in a prompt, with placeholders that are prompt tokens.

    start_tokens: prompt tokens before it. tokens: its placeholders, each filled by one embedding
    of the encoder. content: equal for equal items, as vLLM's hash of the item.
    """

    start_tokens: int
    tokens: int
    content: int

    @property
    def end_tokens(self) -> int:
        """Prompt tokens up to the end of the item's placeholders."""
        return self.start_tokens + self.tokens


class Request(NamedTuple):
    """One request of a workload, as its client sends it.

    id: unique in its stream.
    arrival_ps: when it arrives, in ps from the stream's start; ignored when `after` is set.
    prompt_tokens: exact length, >= 1.
    output_tokens: exact length, which the engine does not know in advance. 0: the prompt alone is
        computed (an embedding, a score, a cache to warm), and the step that ends it returns the
        result.
    max_tokens: the output length the client declared (None: it declared none).
    ignore_eos: the client asked for all output tokens, as benchmarks do, and the engine knows it.
    front_end_ps: time between client and engine, contained in arrival_ps or think_ps; latencies
        include it.
    priority: lower runs first under a priority policy of vLLM's, higher under SGLang's unless
        schedule_low_priority_values_first is set.
    n: parallel samples of the prompt.
    prompt_runs: the prompt's token ids as runs, lengths summing to prompt_tokens; None: private.
    output_start: token id of the first output token, the others follow; None: private.
    after, think_ps: arrives think_ps after the request with this id, or the group of this name, has
        finished (closed loops, conversations).
    session: the conversation it belongs to, for reports, and SGLang's routing key.
    group: requests that arrive together; `after` may name a group, which has finished with its last
        request.
    any_user: a closed loop's next start. It arrives when any user is free, in the stream's order,
        and does not wait for the request in `after`.
    ends_session: it is the last of its session, and the client says so. pause_ps: how long its
        session pauses after it, as the client says; None: it does not.
    items: images, sounds and videos of the prompt in their order, which do not overlap.
    adapter: the LoRA adapter that computes it; None: the base model. Its token ids are of this
        adapter alone: `under_adapter` in `kvsim.token_runs`.
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
    items: tuple[PromptItem, ...] = ()
    adapter: int | None = None
    ends_session: bool = False
    pause_ps: int | None = None
    group: str | None = None
    any_user: bool = False

    @property
    def final_tokens(self) -> int:
        """KV slots that each of its sequences holds at its end: the last token sampled is never
        computed.
        """
        return self.prompt_tokens + max(0, self.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests in order of arrival (followers after the request they follow).

    notes: changes made to the requests ("clipped 12 of 19,366 prompts to 4,096 tokens"). source:
    origin of the requests, for provenance: name, sha256 of the file, seed and so on.
    max_concurrency: the clients send no more while this many requests are in flight; None: no
    limit.
    """

    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()
    source: dict[str, str] = field(default_factory=dict)
    max_concurrency: int | None = None

    @classmethod
    def of(cls, requests: "Stream | Iterable[Request]") -> "Stream":
        """`requests` itself if it is a Stream, else a Stream of these requests."""
        return requests if isinstance(requests, Stream) else cls(tuple(requests))

    def with_hints(self) -> "Stream":
        """The stream with session hints in its requests: ends_session and pause_ps.

        The last request of a session has ends_session = True; one that another request follows has
        the think time in pause_ps.
        """
        last = {request.session: request.id for request in self.requests}
        pauses = {request.after: request.think_ps for request in self.requests}
        requests = tuple(
            request._replace(
                ends_session=last[request.session] == request.id, pause_ps=pauses.get(request.id)
            )
            if request.session is not None
            else request
            for request in self.requests
        )
        return replace(self, requests=requests)

    @property
    def anonymous(self) -> bool:
        """Whether every prompt is private (prompt_runs None) and every request has one sample."""
        return all(request.prompt_runs is None and request.n == 1 for request in self.requests)
