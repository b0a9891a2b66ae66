"""vLLM's disaggregation: a proxy sends each request to a prefill engine, and after its answer to a
decode engine, which reads the KV (NixlConnector, 0.33.0).
"""

from collections.abc import Hashable
from dataclasses import replace
from typing import cast

from kvsim.engine.connectors.multi import MultiConnector
from kvsim.engine.connectors.nixl.consumer import NixlConsumer, ReadGroup
from kvsim.engine.connectors.nixl.producer import NixlProducer
from kvsim.engine.connectors.nixl.remote import KeeperInbox, RemotePrompts
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.connectors.tiers import ConnectorPlan
from kvsim.engine.engine import Engine
from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.transfers.exchange import ABANDONED
from kvsim.engine.transfers.handoff import Handoff, names_of, prompt_of
from kvsim.engine.transfers.network import Network
from kvsim.memory import ALLOCATORS
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.options import Paged
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.support.parts import ServerParts
from kvsim.support.table import check

HEARTBEATS = 6  # in a lease
EXTENSION = (2, 3)  # of a lease, from a heartbeat on


class NetworkReads:
    """Reads of one decode engine over the network. handshake_ps: time of the first contact with a
    prefill engine.
    """

    def __init__(self, network: Network, handshake_ps: int) -> None:
        self._network = network
        self.handshake_ps = handshake_ps

    def read(self, keeper: KeeperInbox, num_bytes: int, at_ps: int) -> tuple[int, int]:
        """Queue a read requested at at_ps; returns its start and end in ps."""
        sender: Hashable = keeper
        return self._network.send(at_ps, num_bytes, sender, self)


class NixlHandoff(Handoff):
    """Engines with a NixlConnector.

    recomputes_failed: requests with a failed read are recomputed on the decode engine, instead of
    ending with an error.
    """

    recomputes_failed = False
    _backoff = 0  # see `prefilled_tokens`

    @classmethod
    def check(cls, spec: ReplicaSpec) -> None:
        layout, options, found = spec.layout, spec.allocator, set[str]()
        states = any(group.kind == "recurrent" for group in layout.groups)
        given = tuple((key, value) for key, value in options if value is not None)
        if layout.has_own_blocks:
            found.add("own blocks")
        keeps = isinstance(options, Paged) and options.disable_hybrid_kv_cache_manager
        if not keeps and any(group.chunk_tokens for group in layout.groups):
            found.add("chunks")
        check(
            ServerParts(
                transfers="vllm",
                stages=spec.stages,
                allocator=ALLOCATORS.name_of(options),
                layers=frozenset(found),
                grouped=states,
                options=given,
                drafts=spec.speculation is not None,
            )
        )

    def prefill_spec(self, spec: ReplicaSpec) -> ReplicaSpec:
        """The spec of a prefill engine. With tiers it has both connectors in a MultiConnector of
        role kv_both.
        """
        self._prompts = RemotePrompts()
        self._producers: list[NixlProducer] = []
        tiers = spec.connector
        if tiers is None:
            return replace(spec, connector=ConnectorPlan(self._producer, asks_blocks=False))

        def both(shared: Shared) -> MultiConnector:
            return MultiConnector((self._producer(shared), tiers.build(shared)), loads=True)

        return replace(spec, connector=ConnectorPlan(both, tiers.holds))

    def decode_spec(self, spec: ReplicaSpec) -> ReplicaSpec:
        self._consumers: list[NixlConsumer] = []
        self._backoff = backoff_of(spec)
        return replace(spec, connector=ConnectorPlan(self._consumer, asks_blocks=False))

    def _producer(self, _: Shared) -> NixlProducer:
        lease_ps = self.spec.lease_ps
        extension_ps = lease_ps * EXTENSION[0] // EXTENSION[1]
        found = NixlProducer(self._prompts, self._now, lease_ps, extension_ps)
        self._producers.append(found)
        return found

    def _consumer(self, _: Shared) -> NixlConsumer:
        reads = NetworkReads(self.network, self.spec.handshake_ps)
        beat_ps = self.spec.lease_ps // HEARTBEATS
        found = NixlConsumer(
            self._prompts,
            (),
            reads,
            beat_ps,
            recomputes_failed=self.recomputes_failed,
            fails=self.failed_reads,
            backoff=self._backoff,
        )
        self._consumers.append(found)
        return found

    def _now(self) -> int:
        return cast("int", self.env.now)

    def connect(self, prefill: list[Engine], decode: list[Engine]) -> None:
        self._prefill, self._decode = prefill, decode
        # Specs are built to be checked too: the last connectors are those of the engines.
        self._producers = self._producers[-len(prefill) :]
        self._consumers = self._consumers[-len(decode) :]
        self._going: dict[str, tuple[Request, int, int, int]] = {}
        scale = _widest(prefill[0], decode[0])
        for engine, consumer in zip(decode, self._consumers, strict=True):
            consumer.read_groups(_groups(engine, scale))

    def submit(self, request: Request, prefill: int, decode: int) -> None:
        self._going[request.id] = request, prefill, decode, self._now()
        self._prefill[prefill].submit(prompt_of(request, self._backoff))

    def prefilled(self, request: Request) -> None:
        whole, _, decode, came_ps = self._going.pop(request.id)
        if request.id in self.abandoned:
            for name in names_of(whole):
                self._prompts.take(name)
            self._decode[decode].turn_away(whole, ABANDONED)
            return

        def pass_on() -> None:
            for name in names_of(whole):
                self._consumers[decode].arrived(name)
            self._decode[decode].submit(whole, came_ps)

        self.env.timeout(self.spec.proxy_ps).callbacks.append(lambda _: pass_on())

    @property
    def num_expired(self) -> int:
        return sum(producer.num_expired for producer in self._producers)


def backoff_of(spec: ReplicaSpec) -> int:
    """Number of last prompt tokens that the prefill engine leaves to the decode engine (vLLM 0.33,
    nixl/base_scheduler.py, `_prefill_backoff`).

    One token with recurrent states: the decode engine continues from the state before its last
    token. More with chained draft modules, which read further tokens ahead.
    """
    states = any(group.kind == "recurrent" for group in spec.layout.groups)
    drafts = spec.speculation
    return max(int(states), 0 if drafts is None else drafts.prefill_lookahead - 1)


def _widest(prefill: Engine, decode: Engine) -> tuple[int, int]:
    """A fraction (bytes per token on a rank of the side with fewer TP ranks, bytes per token on a
    decode rank).

    The NICs of the side with fewer ranks carry the whole transfer.
    """
    ours, theirs = (engine.scheduler.allocator.token_bytes for engine in (decode, prefill))
    return (max(ours, theirs), ours) if ours else (1, 1)  # only states: no ratio, taken as equal


def _groups(engine: Engine, scale: tuple[int, int]) -> tuple[ReadGroup, ...]:
    allocator = engine.scheduler.allocator
    assert isinstance(allocator, PagedAllocator)
    return tuple(
        ReadGroup(
            group.block_size,
            ceil_div(
                (group.state_bytes or group.slot_bytes * group.block_size) * scale[0], scale[1]
            ),
            0
            if group.window_tokens is None
            else ceil_div(group.window_tokens, group.block_size) + 1,
            group.state_bytes > 0,
        )
        for group in allocator.groups
    )
