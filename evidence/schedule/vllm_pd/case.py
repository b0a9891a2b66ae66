"""A schedule recorded from a prefill and a decode engine of vLLM, as input.

A proxy passes each request from the prefill engine to the decode engine, which then reads the KV
over a link.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from evidence.schedule.case import LATEST, by_arrival, check_of_two_engines
from evidence.schedule.offload.costs import TransferCost
from evidence.schedule.offload.native import NativeOffload, TransferParams
from evidence.schedule.recording import RecordedCase
from evidence.schedule.rows import Row
from evidence.schedule.ticks import MOST_TICKS, TICK_PS, CaseCost, TickCost
from evidence.schedule.vllm.engine_settings import VllmEngine
from evidence.schedule.vllm.schedule import Accepted, VllmRequest, acceptance
from evidence.schedule.vllm_dp.rows import RankRows, forward_rows
from evidence.schedule.vllm_pd.rows import PairRows, TieredPairRows
from kvsim.engine.arrivals import Arrivals
from kvsim.engine.clock import EngineClock
from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.multi import MultiConnector
from kvsim.engine.connectors.nixl.consumer import NixlConsumer, ReadGroup
from kvsim.engine.connectors.nixl.producer import NixlProducer
from kvsim.engine.connectors.nixl.remote import KeeperInbox, RemotePrompts
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.connectors.tiers import ConnectorPlan
from kvsim.engine.engine import Engine
from kvsim.engine.executor.copies import CopyingExecutor
from kvsim.engine.observer import Observer
from kvsim.engine.parts import EngineParts
from kvsim.engine.ranks import Ranks
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.transfers.handoff import prompt_of
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request, Stream
from kvsim.results.recorder import Recorder

SIDES = ("prefill", "decode")


class RecordedNixl(Options):
    """Settings of NixlConnector, as vLLM resolved them; times in ticks. backoff: last prompt tokens
    that the prefill engine leaves to the decode engine.
    """

    role: Literal["kv_producer", "kv_consumer", "kv_both"]
    block_bytes: tuple[int, ...]
    lease: int = Field(ge=0)
    heartbeat_interval: int = Field(ge=0)
    lease_extension: int = Field(ge=0)
    window_blocks: tuple[int, ...]
    load_failure: Literal["fail", "recompute"]
    deferred_frees: bool = False
    backoff: int = Field(0, ge=0)


class PairedEngine(VllmEngine):
    """Settings of one engine. pd: settings of its NixlConnector, with its role.

    offload: settings of the OffloadingConnector in the same MultiConnector; None without one.
    """

    pd: RecordedNixl
    offload: NativeOffload | None = None


class PairedEngines(Options):
    """Settings of the prefill and the decode engine."""

    prefill: PairedEngine
    decode: PairedEngine


class PairLink(Options):
    """Ticks of a read: latency + bytes / bytes_per_tick, rounded up.

    shared: whether reads run one after the other. handshake: ticks of the first contact. launch:
    from the launch of a step to its reads and its poll. launch_empty: whether an iteration without
    tokens has this delay too, as in case 153. idle: time that an engine without work sleeps.
    """

    latency: int = Field(ge=0, le=MOST_TICKS)
    bytes_per_tick: int = Field(ge=1)
    shared: bool = True
    handshake: int = Field(0, ge=0, le=MOST_TICKS)
    launch: int = Field(0, ge=0, le=MOST_TICKS)
    launch_empty: bool = False
    idle: int = Field(1000, ge=1, le=MOST_TICKS)


class TickReads:
    """Reads over the recorded link."""

    def __init__(self, link: PairLink) -> None:
        self._link = link
        self.handshake_ps = link.handshake * TICK_PS
        self._free_ps = 0

    def read(self, keeper: KeeperInbox, num_bytes: int, at_ps: int) -> tuple[int, int]:
        link = self._link
        start_ps = max(at_ps, self._free_ps) if link.shared else at_ps
        ticks = link.latency + ceil_div(num_bytes, link.bytes_per_tick)
        self._free_ps = end_ps = start_ps + ticks * TICK_PS
        return start_ps, end_ps


class PairRequest(VllmRequest):
    """A recorded request. gone: whether the client disconnects after prefill.

    delay: ticks before it reaches the decode engine, in addition to the proxy's. fail_read: whether
    its read fails. direct: whether it goes only to the decode engine. kv_transfer_params: as sent
    by the client to the prefill engine.
    """

    gone: bool = False
    delay: int = Field(0, ge=0, le=LATEST)
    fail_read: bool = False
    direct: bool = False
    kv_transfer_params: TransferParams | None = None

    @field_validator("gone", "fail_read", "direct", mode="before")
    @classmethod
    def _flag(cls, value: object) -> object:
        return bool(value) if value in (0, 1) else value


class VllmPairCase(RecordedCase):
    """A schedule of a prefill and a decode engine of vLLM; rows of the prefill engine come first.

    proxy: ticks from the prefill engine's answer to the request's arrival at the decode engine.
    transfer: durations of copies to and from the prefill engine's host memory. accept: number of
    accepted drafts of each verification of the decode engine, in order.
    """

    recognised_by: ClassVar[str] = "engine.prefill"

    model: dict[str, Any] | None = None
    prefill: dict[str, Any] | None = None
    decode: dict[str, Any] | None = None
    link: PairLink
    transfer: TransferCost | None = None
    proxy: int = Field(0, ge=0, le=MOST_TICKS)
    engine: PairedEngines
    cost: CaseCost
    accept: tuple[Accepted, ...] = ()
    requests: tuple[PairRequest, ...]

    @model_validator(mode="after")
    def _host_memory_is_of_prefill(self) -> "VllmPairCase":
        offload = self.engine.prefill.offload
        if self.engine.decode.offload is not None or (offload is not None and offload.tiers):
            raise ValueError("host memory is replayed alone, and of the prefill engine")
        if offload is not None and self.transfer is None:
            raise ValueError("an engine with host memory needs transfer")
        return self

    @field_validator("requests")
    @classmethod
    def _arrive_at_a_time(cls, found: tuple[PairRequest, ...]) -> tuple[PairRequest, ...]:
        check_of_two_engines(found)
        return found

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        engine = table.get("engine")
        return isinstance(engine, Mapping) and set(SIDES) <= engine.keys()

    @classmethod
    def rows_of(cls, expectation: Mapping[str, Any]) -> Any:
        if not all(isinstance(expectation.get(side), list) for side in SIDES):
            return None
        engines = {"prefill": expectation["prefill"], "decode": expectation["decode"]}
        if all(isinstance(rank, list) for rank in expectation["decode"]):
            ranks = engines.pop("decode")
            engines |= {_name(number, len(ranks)): rows for number, rows in enumerate(ranks)}
        rows = [{"side": side, **row} for side, each in engines.items() for row in each]
        forwards = expectation.get("forwards", ())
        return rows + [{"side": "forwards", "forward": each} for each in forwards]

    def simulated(self, recorded: list[Row]) -> list[Row]:
        return PairReplay(self).rows()

    @model_validator(mode="after")
    def _ranks_decode(self) -> "VllmPairCase":
        if self.engine.prefill.data_parallel_size > 1:
            raise ValueError("only the decode engine is replayed with several ranks")
        ranks = self.engine.decode.data_parallel_size
        if any(request.rank >= ranks for request in self.requests):
            raise ValueError("a request's rank must be below engine.decode.data_parallel_size")
        return self


def _name(number: int, ranks: int) -> str:
    """Name of a decode engine in rows: with several ranks it ends with the rank."""
    return "decode" if ranks == 1 else f"decode {number}"


class PairReplay:
    """Both simulated engines on one clock. The decode engine may have several data-parallel ranks
    that compute each forward together.
    """

    def __init__(self, case: VllmPairCase) -> None:
        self._case = case
        self._env = EngineClock()
        self._prompts = RemotePrompts()
        self._asked = {name: request for request in case.requests for name in request.names()}
        timed, _ = by_arrival(case.requests)
        self._arrivals = Arrivals(self._env, Stream(tuple(timed)))
        self._whole = {request.id: request for request in timed}
        self._arrivals.submit = self._submit
        engines, ranks = case.engine, case.engine.decode.data_parallel_size
        rows = self._prefill_rows = self._rows_of(engines.prefill)
        producer = self._tiered(self._producer(), rows)
        self._prefill = self._engine(engines.prefill, producer, rows)
        self._together = Ranks(self._env, engines.decode.dp_sync_interval)
        self._together.forwards = []
        self._decode: list[Engine] = []
        self._decode_rows: list[PairRows | RankRows] = []
        self._consumers = [self._reader() for _ in range(ranks)]
        for consumer in self._consumers:
            rows = self._rows_of(engines.decode)
            rows.stalled = self._stalled
            shown = rows if ranks == 1 else RankRows(rows, self._together)
            self._decode_rows.append(shown)
            self._decode.append(self._engine(engines.decode, consumer, rows, shown))
        self._to_come = sum(len(request.names()) for request in case.requests)

    def _rows_of(self, engine: PairedEngine) -> PairRows:
        kind = PairRows if engine.offload is None else TieredPairRows
        return kind(
            by_group=len(engine.kv_groups) > 1,
            defers=engine.pd.deferred_frees,
            fails=engine.pd.load_failure == "fail",
            encodes=engine.encoder_cache_size is not None,
            ranked=engine.data_parallel_size > 1,
        )

    def rows(self) -> list[Row]:
        """Simulate, and return the rows of both engines."""
        self._env.run()
        engines = {"prefill": self._prefill_rows.rows}
        for number, each in enumerate(self._decode_rows):
            found = each.rows() if isinstance(each, RankRows) else each.rows
            engines[_name(number, len(self._decode))] = found
        rows = [{"side": side, **row} for side, each in engines.items() for row in each]
        return rows + forward_rows(self._together)

    def _stalled(self) -> None:
        """End the replay if no request will arrive, as the recorder does, since the decode engine
        cannot continue. Otherwise its heartbeats would extend leases for ever.
        """
        if not self._to_come:
            for engine in (self._prefill, *self._decode):
                engine.stop()

    # --- requests ------------------------------------------------------------------------------

    def _submit(self, request: Request) -> None:
        asked = self._asked[request.id]
        if asked.direct:
            self._to_come -= 1
            self._decode[asked.rank].submit(request)
        else:
            self._prefill.submit(prompt_of(request, self._case.engine.prefill.pd.backoff))

    def _answered(self, request: Request) -> None:
        """Handle an answer of the prefill engine, which is sent at the end of the iteration."""
        asked = self._asked[request.id]
        if asked.gone:
            self._to_come -= 1
            return
        executor = self._prefill.executor
        assert isinstance(executor, CopyingExecutor)
        idle = self._case.link.idle if executor.idles else 0
        delay = (idle + self._case.proxy + asked.delay) * TICK_PS
        self._env.timeout(delay).callbacks.append(lambda _: self._pass_on(request.id))

    def _pass_on(self, name: str) -> None:
        self._to_come -= 1
        rank = self._asked[name].rank
        self._consumers[rank].arrived(name)
        self._decode[rank].submit(self._whole[name])

    # --- engines -------------------------------------------------------------------------------

    def _producer(self) -> NixlProducer:
        pd = self._case.engine.prefill.pd
        return NixlProducer(
            self._prompts,
            lambda: int(self._env.now),
            pd.lease * TICK_PS,
            pd.lease_extension * TICK_PS,
        )

    def _tiered(self, producer: NixlProducer, rows: PairRows) -> Connector:
        """The prefill engine's connector, including host memory if it has any."""
        engine, transfer = self._case.engine.prefill, self._case.transfer
        if engine.offload is None or transfer is None or not isinstance(rows, TieredPairRows):
            return producer
        limits = {
            name: request.kv_transfer_params.limits
            for name, request in self._asked.items()
            if request.kv_transfer_params is not None
        }
        host = engine.offload.builder(engine, transfer, limits)(Shared())
        assert isinstance(host, OffloadingConnector)
        rows.watch(host)
        return MultiConnector((producer, host), loads=engine.pd.role != "kv_producer")

    def _reader(self) -> NixlConsumer:
        engine = self._case.engine.decode
        tables = [group for group in engine.kv_groups for _ in range(group.groups)]
        groups = tuple(
            ReadGroup(
                table.block_size or engine.block_size,
                num_bytes,
                window,
                recurrent=table.kind == "recurrent",
            )
            for table, num_bytes, window in zip(
                tables, engine.pd.block_bytes, engine.pd.window_blocks, strict=True
            )
        )
        return NixlConsumer(
            self._prompts,
            groups,
            TickReads(self._case.link),
            engine.pd.heartbeat_interval * TICK_PS,
            recomputes_failed=engine.pd.load_failure == "recompute",
            backoff=engine.pd.backoff,
            fails=[name for name, request in self._asked.items() if request.fail_read],
        )

    def _engine(
        self,
        engine: PairedEngine,
        connector: Connector,
        rows: PairRows,
        observer: Observer | None = None,
    ) -> Engine:
        """One engine of the pair. observer: writes its rows; None: `rows` itself does."""
        decodes = engine is self._case.engine.decode
        connector.idle_ps = self._case.link.idle * TICK_PS
        connector.poll_ps = self._case.link.launch * TICK_PS
        connector.empty_poll_ps = connector.poll_ps if self._case.link.launch_empty else 0
        connector.record(rows.journal)
        alone = engine.replica_spec(acceptance(self._case.accept, self._case.requests))
        spec = replace(alone, connector=ConnectorPlan(lambda _: connector))
        scheduler = spec.build()
        assert isinstance(scheduler, ContinuousScheduler)
        parts = EngineParts(
            scheduler,
            TickCost(self._case.cost),
            Recorder(spec.capacity_bytes),
            spec.host_link(),
            depth=spec.scheduler.depth,
            max_steps=1,
            on_left=self._arrivals.left if decodes else self._answered,
            observer=observer or rows,
            refuse=False,
            routed=True,
        )
        if engine.data_parallel_size > 1:
            return Engine(self._env, parts, self._together.executor(connected=True)).start()
        return Engine(self._env, parts, CopyingExecutor).start()
