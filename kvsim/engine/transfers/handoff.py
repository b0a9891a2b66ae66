"""How engines of one kind hand prompts from one to another."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from kvsim.engine.clock import EngineClock
from kvsim.engine.engine import Engine
from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.transfers.network import Network
from kvsim.request import Request


class TransferSpec(NamedTuple):
    """latency_ps, bytes_per_s: of a port of the network. handshake_ps: of the first contact of two
    engines (vLLM), or of every request (SGLang). notice_ps, notify_ps: see `TransferDelays`.
    proxy_ps: from the answer of a prefill engine to the arrival at the decode engine. lease_ps: how
    long a prefill engine keeps a prompt without a word. bootstrap_timeout_ps, waiting_timeout_ps:
    see `TransferDelays`.
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
    """A share of all requests, chosen by their names and a seed."""

    def __init__(self, share: float, seed: str) -> None:
        self._share, self._seed = share, seed

    def __contains__(self, name: object) -> bool:
        return self._share > 0 and Random(f"{self._seed} {name}").random() < self._share


class Handoff(ABC):
    """The connection of the prefill and decode engines of one deployment.

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
        """Raise InputError if such a replica cannot be of either side."""

    @abstractmethod
    def prefill_spec(self, spec: ReplicaSpec) -> ReplicaSpec:
        """A replica made for prompts; InputError if it cannot be."""

    @abstractmethod
    def decode_spec(self, spec: ReplicaSpec) -> ReplicaSpec:
        """A replica made for outputs; InputError if it cannot be."""

    @abstractmethod
    def connect(self, prefill: list[Engine], decode: list[Engine]) -> None:
        """Connect all engines."""

    @abstractmethod
    def submit(self, request: Request, prefill: int, decode: int) -> None:
        """`request` comes now, and goes to these two engines."""

    def prefilled(self, request: Request) -> None:
        """A prefill engine has done all that it does for `request`."""
        return

    @property
    def num_expired(self) -> int:
        """Prompts with a lease that ended before they were read."""
        return 0


def prompt_of(request: Request) -> Request:
    """The request to a prefill engine: the prompt, and one output token."""
    return request._replace(output_tokens=1, max_tokens=1)


def names_of(request: Request) -> Iterator[str]:
    """The names of the sequences of a request."""
    if request.n == 1:
        yield request.id
    else:
        yield from (f"{sample}_{request.id}" for sample in range(request.n))
