"""A schedule recorded from a prefill and a decode engine of SGLang, as input. KV goes from one to
the other over a link.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from evidence.schedule.case import MOST_TOKENS, by_arrival, check_of_two_engines
from evidence.schedule.recording import RecordedCase
from evidence.schedule.rows import Row
from evidence.schedule.sglang.hicache import HicacheSettings, ticked_link
from evidence.schedule.sglang.hicache_columns import HicacheColumns
from evidence.schedule.sglang.request import LARGEST_POOL, SglangRequest
from evidence.schedule.sglang_pd.rows import DecodeRows, PrefillRows, SideRows
from evidence.schedule.ticks import MOST_TICKS, TICK_PS, CaseCost, TickCost
from kvsim.engine.arrivals import Arrivals
from kvsim.engine.clock import EngineClock
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.engine import Engine
from kvsim.engine.executor.hicache import HicacheExecutor, hicache_of
from kvsim.engine.hicache.hierarchy import Hierarchy
from kvsim.engine.parts import EngineParts
from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.schedulers.sglang_pd.decode import DecodeSide
from kvsim.engine.schedulers.sglang_pd.prefill import PrefillSide
from kvsim.engine.schedulers.sglang_pd.sides import SglangDecode, SglangPrefill, side_of
from kvsim.engine.transfers.exchange import NEVER, Exchange, Port, TransferDelays
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.radix.options import Radix
from kvsim.plumbing.options import Options
from kvsim.request import Request, Stream
from kvsim.results.recorder import Recorder

SIDES = ("prefill", "decode")


class PairCost(CaseCost):
    """Ticks in addition to those of steps: handshake, notice, notify, and x_a + x_b * tokens per
    transfer.

    Retracting a request takes w_a + w_b * tokens, loading it again layers * (l_a + l_b * tokens).
    """

    handshake: int = Field(ge=0, le=MOST_TICKS)
    notice: int = Field(ge=0, le=MOST_TICKS)
    notify: int = Field(ge=0, le=MOST_TICKS)
    x_a: int = Field(ge=0, le=MOST_TICKS)
    x_b: int = Field(ge=0, le=MOST_TICKS)
    layers: int = Field(1, ge=0, le=MOST_TICKS)
    w_a: int = Field(0, ge=0, le=MOST_TICKS)
    w_b: int = Field(0, ge=0, le=MOST_TICKS)
    l_a: int = Field(0, ge=0, le=MOST_TICKS)
    l_b: int = Field(0, ge=0, le=MOST_TICKS)


class TickLink:
    """A link that sends one transfer after the other; a token is one byte."""

    def __init__(self, cost: PairCost) -> None:
        self._cost = cost
        self._free_ps = 0

    def send(self, at_ps: int, num_bytes: int, sender: object, receiver: object) -> tuple[int, int]:
        start_ps = max(at_ps, self._free_ps)
        self._free_ps = start_ps + (self._cost.x_a + self._cost.x_b * num_bytes) * TICK_PS
        return start_ps, self._free_ps


class TickCopies:
    """Copies to host memory and back."""

    def __init__(self, cost: PairCost) -> None:
        self._cost = cost

    def out_ps(self, at_ps: int, tokens: int) -> int:
        return (self._cost.w_a + self._cost.w_b * tokens) * TICK_PS

    def back_ps(self, at_ps: int, tokens: int) -> int:
        cost = self._cost
        return cost.layers * (cost.l_a + cost.l_b * tokens) * TICK_PS


class PairEngine(Options):
    """Settings that both engines share. chunked_prefill_size: -1 for no chunking."""

    page_size: int = Field(1, ge=1, le=MOST_TOKENS)
    max_prefill_tokens: int = Field(16384, ge=1)
    chunked_prefill_size: int = Field(8192, ge=-1)
    schedule_policy: Literal["fcfs", "lpm"] = "fcfs"
    schedule_conservativeness: float = Field(1.0, ge=0)
    mixed_chunk: Literal[False] = False
    overlap: bool = True
    context_length: int = Field(ge=2, le=MOST_TOKENS)


class PairSide(Options):
    """Settings of one engine. max_total_tokens: tokens in the pool, without its padding page."""

    max_total_tokens: int = Field(ge=1, le=LARGEST_POOL)
    max_running_requests: int | None = Field(None, ge=1)
    radix_cache: bool = True


class PairSettings(Options):
    """Settings of the transfer between the engines; timeouts in ticks, None for no timeout."""

    num_reserved_decode_tokens: int = Field(512, ge=0)
    decode_radix_cache: bool = False
    allocation_policy: Literal["early"] = "early"
    retraction_host_ratio: float | None = Field(None, gt=0)
    bootstrap_timeout: int | None = Field(None, ge=1, le=MOST_TICKS)
    waiting_timeout: int | None = Field(None, ge=1, le=MOST_TICKS)

    def delays(self, cost: PairCost) -> TransferDelays:
        """The delays of messages, and the timeouts."""
        return TransferDelays(
            cost.handshake * TICK_PS,
            cost.notice * TICK_PS,
            cost.notify * TICK_PS,
            _ps_or_never(self.bootstrap_timeout),
            _ps_or_never(self.waiting_timeout),
        )


def _ps_or_never(ticks: int | None) -> int:
    return NEVER if ticks is None else ticks * TICK_PS


class PairedRequest(SglangRequest):
    """A recorded request. fail_read: whether its transfer fails after all data was sent."""

    fail_read: bool = False

    @field_validator("fail_read", mode="before")
    @classmethod
    def _flag(cls, value: object) -> object:
        return bool(value) if value in (0, 1) else value


class SglangPairCase(RecordedCase):
    """A schedule of two SGLang engines; rows of the prefill engine come before those of the decode
    engine.

    recognised_by: the key of `pd` by which this kind of case is recognised.
    """

    recognised_by: ClassVar[str] = "num_reserved_decode_tokens"

    engine: PairEngine
    prefill: PairSide
    decode: PairSide
    pd: PairSettings
    hicache: HicacheSettings | None = None
    hicache_sides: tuple[Literal["prefill", "decode"], ...] = ()
    cost: PairCost
    requests: tuple[PairedRequest, ...]

    @field_validator("requests")
    @classmethod
    def _arrive_at_a_time(cls, found: tuple[PairedRequest, ...]) -> tuple[PairedRequest, ...]:
        check_of_two_engines(found)
        return found

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        pair = table.get("pd")
        return isinstance(pair, Mapping) and cls.recognised_by in pair

    @classmethod
    def rows_of(cls, expectation: Mapping[str, Any]) -> Any:
        steps = expectation.get("steps")
        if not isinstance(steps, Mapping) or not all(
            isinstance(steps.get(side), list) for side in SIDES
        ):
            return None
        return [{"side": side, **row} for side in SIDES for row in steps[side]]

    def simulated(self, recorded: list[Row]) -> list[Row]:
        env = EngineClock()
        timed, _ = by_arrival(self.requests)
        arrivals = Arrivals(env, Stream(tuple(timed)))
        failing = [name for each in self.requests if each.fail_read for name in each.names()]
        exchange = Exchange(TickLink(self.cost), self.pd.delays(self.cost), fails=failing)
        columns = [HicacheColumns() if side in self.hicache_sides else None for side in SIDES]
        prefill_rows, decode_rows = PrefillRows(columns[0]), DecodeRows(columns[1])
        prefill = self._engine(env, self._prefill_spec(), prefill_rows)
        decode = self._engine(env, self._decode_spec(), decode_rows)
        sender, receiver = side_of(prefill.scheduler), side_of(decode.scheduler)
        assert isinstance(sender, PrefillSide)
        assert isinstance(receiver, DecodeSide)
        sender.connect(exchange, Port(env, prefill.cut))
        receiver.connect(exchange, Port(env, decode.cut), TickCopies(self.cost))

        def submit(request: Request) -> None:
            prefill.submit(request._replace(output_tokens=1, max_tokens=1))
            decode.submit(request)

        arrivals.submit = submit
        env.run()
        found: list[Row] = []
        for side, rows in zip(SIDES, (prefill_rows, decode_rows), strict=True):
            rows.end()
            found += [{"side": side, **row} for row in rows.rows]
        return found

    def _engine(self, env: EngineClock, spec: ReplicaSpec, rows: SideRows) -> Engine:
        parts = EngineParts(
            spec.build(),
            TickCost(self.cost),
            Recorder(spec.capacity_bytes),
            spec.host_link(),
            depth=spec.scheduler.depth,
            max_steps=1,
            observer=rows,
            refuse=False,
        )
        if spec.hicache is None:
            return Engine(env, parts).start()
        engine = Engine(env, parts, HicacheExecutor)
        spec.hicache.connect(hicache_of(engine.scheduler), Shared())
        return engine.start()

    def _prefill_spec(self) -> ReplicaSpec:
        scheduler = SglangPrefill.parse(self._flags(self.prefill), "engine")
        spec = self._spec(scheduler, self.prefill, self.prefill.radix_cache)
        return self._with_hicache(spec, "prefill")

    def _with_hicache(self, spec: ReplicaSpec, side: Literal["prefill", "decode"]) -> ReplicaSpec:
        if self.hicache is None or side not in self.hicache_sides:
            return spec
        cost = self.cost
        link = ticked_link((cost.w_a, cost.w_b), (cost.l_a, cost.l_b), cost.layers)
        pages = self.hicache.pages(self.engine.page_size)
        return replace(spec, allocator=pages, hicache=Hierarchy(link))

    def _decode_spec(self) -> ReplicaSpec:
        pd = self.pd
        reserved = {
            "num_reserved_decode_tokens": pd.num_reserved_decode_tokens,
            "retraction_host_ratio": pd.retraction_host_ratio,
        }
        scheduler = SglangDecode.parse({**self._flags(self.decode), **reserved}, "engine")
        caching = self.pd.decode_radix_cache and self.decode.radix_cache
        return self._with_hicache(self._spec(scheduler, self.decode, caching), "decode")

    def _flags(self, side: PairSide) -> dict[str, Any]:
        engine = self.engine
        return {
            "max_running_requests": side.max_running_requests,
            "max_prefill_tokens": engine.max_prefill_tokens,
            "chunked_prefill_size": engine.chunked_prefill_size,
            "schedule_policy": engine.schedule_policy,
            "schedule_conservativeness": engine.schedule_conservativeness,
            "disable_overlap_schedule": not engine.overlap,
        }

    def _spec(
        self, scheduler: SglangPrefill | SglangDecode, side: PairSide, caching: bool
    ) -> ReplicaSpec:
        """One of the engines, one step at a time; a token is one byte."""
        return ReplicaSpec(
            Radix(page_size=self.engine.page_size, disable_radix_cache=not caching),
            scheduler,
            capacity_bytes=side.max_total_tokens,
            layout=KVLayout((KVGroup("full", 1, 1),)),
            max_model_len=self.engine.context_length,
            copy_bytes_per_s=1,
            host_bytes_per_s=1,
            max_steps=1,
        )
