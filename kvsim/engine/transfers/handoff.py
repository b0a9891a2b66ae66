"""The interface of prefill-decode disaggregation: how prompts get from prefill engines to decode
engines.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from kvsim.engine.clock import EngineClock
from kvsim.engine.connectors.nixl.remote import prefilled_tokens
from kvsim.engine.engine import Engine
from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.transfers.network import Network
from kvsim.request import Request
from kvsim.token_runs import leading


class TransferSpec(NamedTuple):
    """The network and the delays of a deployment.

    latency_ps, bytes_per_s: of each engine's port. handshake_ps: time of the first contact of two
    engines (vLLM), or of every request (SGLang). notice_ps, notify_ps: see `TransferDelays`.
    proxy_ps: from the answer of a prefill engine to the arrival at the decode engine. lease_ps: how
    long a prefill engine holds a prompt without a heartbeat. bootstrap_timeout_ps,
    waiting_timeout_ps: see `TransferDelays`.
    """

    latency_ps: int
    bytes_per_s: int
    handshake_ps: int = 0
    notice_ps: int = 0
    notify_ps: int = 0
    proxy_ps: int = 0
    lease_ps: int = 30 * 10**12
    bootstrap_timeout_ps: int = 300 * 10**12
    waiting_timeout_ps: int = 300 * 10**12


class DrawnRequests:
    """A random share of all requests, drawn by request id and a seed."""

    def __init__(self, share: float, seed: str) -> None:
        self._share, self._seed = share, seed

    def __contains__(self, name: object) -> bool:
        return self._share > 0 and Random(f"{self._seed} {name}").random() < self._share


class Handoff(ABC):
    """Connects the prefill and decode engines of one deployment.

    failed_reads: requests with a transfer that fails. abandoned: requests that the client cancels
    when the prompt is computed.
    """

    failed_reads = abandoned = DrawnRequests(0.0, "")

    def __init__(self, env: EngineClock, spec: TransferSpec) -> None:
        self.env = env
        self.spec = spec
        self.network = Network(spec.latency_ps, spec.bytes_per_s)

    @classmethod
    @abstractmethod
    def check(cls, spec: ReplicaSpec) -> None:
        """Raise InputError if such a replica can be no prefill or decode engine."""

    @abstractmethod
    def prefill_spec(self, spec: ReplicaSpec) -> ReplicaSpec:
        """The spec of a prefill engine, made from `spec`; InputError if it cannot be one."""

    @abstractmethod
    def decode_spec(self, spec: ReplicaSpec) -> ReplicaSpec:
        """The spec of a decode engine, made from `spec`; InputError if it cannot be one."""

    @abstractmethod
    def connect(self, prefill: list[Engine], decode: list[Engine]) -> None:
        """Connect all prefill engines with all decode engines."""

    @abstractmethod
    def submit(self, request: Request, prefill: int, decode: int) -> None:
        """`request` arrives now, for prefill engine and decode engine with these indices."""

    def prefilled(self, request: Request) -> None:
        """Called when the prefill engine has finished `request`."""
        return

    @property
    def num_expired(self) -> int:
        """Number of prompts with a lease that ended before they were read."""
        return 0


def prompt_of(request: Request, backoff: int = 0) -> Request:
    """The request that the prefill engine gets: the prompt with one output token. backoff: last
    prompt tokens that are left to the decode engine, if the prompt is longer than this.
    """
    asked = request._replace(output_tokens=1, max_tokens=1)
    tokens = prefilled_tokens(request.prompt_tokens, backoff)
    if tokens == request.prompt_tokens:
        return asked
    items = (item for item in request.items if item.start_tokens < tokens)
    return asked._replace(
        prompt_tokens=tokens,
        prompt_runs=None if request.prompt_runs is None else leading(request.prompt_runs, tokens),
        items=tuple(
            item._replace(tokens=min(item.tokens, tokens - item.start_tokens)) for item in items
        ),
    )


def names_of(request: Request) -> Iterator[str]:
    """The ids of the sequences of a request."""
    if request.n == 1:
        yield request.id
    else:
        yield from (f"{sample}_{request.id}" for sample in range(request.n))
