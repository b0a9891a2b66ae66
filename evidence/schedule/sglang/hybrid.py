"""Schedules recorded from SGLang for models with sliding windows or recurrent states."""

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from evidence.schedule.case import MOST_TOKENS, Case
from evidence.schedule.sglang.engine import PoolBeside, SglangEngine
from evidence.schedule.sglang.hybrid_rows import HybridRows
from evidence.schedule.sglang.request import SglangRequest
from kvsim.capacity.sglang.pools import windows_at_once
from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.layout import KVGroup
from kvsim.memory.radix_hybrid.strategy import Strategy
from kvsim.plumbing.errors import InputError
from kvsim.request import Request


class WindowsEngine(SglangEngine):
    """Settings of an engine with sliding windows. window: window in tokens, as the cache has it.
    swa_eviction_interval, release_prefill_swa: environment variables of the server. Other keys are
    its flags.
    """

    kind: Literal["swa"]
    window: int = Field(ge=1, le=MOST_TOKENS)
    swa_full_tokens_ratio: float = Field(0.8, gt=0, le=1)
    swa_eviction_interval: int = Field(128, ge=1)
    release_prefill_swa: bool = False
    expect_running: int | None = None

    @property
    def second_pool(self) -> PoolBeside:
        page, requests = self.page_size, self.max_running_requests
        tokens = int(self.max_total_tokens // page * page * self.swa_full_tokens_ratio)
        tokens = tokens // page * page
        if not self.radix_cache and requests is not None and self.chunked_prefill_size > 0:
            tokens = windows_at_once(
                requests,
                self.window,
                page,
                self.chunked_prefill_size,
                overlaps=self.overlap,
                interval=self.swa_eviction_interval,
            )
        return PoolBeside(
            (KVGroup("sliding", 1, 1, window_tokens=self.window),),
            tokens,
            tokens,
            {
                "swa_eviction_interval": self.swa_eviction_interval,
                "release_prefill_swa": self.release_prefill_swa,
            },
        )


class StatesEngine(SglangEngine):
    """Settings of an engine with recurrent states. max_mamba_cache_size: number of state slots.
    mamba_strategy: the flag --mamba-radix-cache-strategy. Other keys are flags. states_alone:
    whether no layer stores KV; tokens are counted all the same. expect_running: number of requests
    that may run at once.
    """

    kind: Literal["mamba"]
    max_mamba_cache_size: int = Field(ge=1, le=MOST_TOKENS)
    mamba_strategy: Strategy
    mamba_track_interval: int = Field(256, ge=1)
    mamba_max_states_per_path: int = Field(-1, ge=-1)
    states_alone: bool = False
    expect_running: int | None = None

    @property
    def second_pool(self) -> PoolBeside:
        states = self.max_mamba_cache_size
        flags: dict[str, Any] = {"max_mamba_cache_size": states}
        if self.radix_cache:  # a scenario is refused what its server would not look at
            flags["mamba_radix_cache_strategy"] = self.mamba_strategy
            flags["mamba_max_states_per_path"] = self.mamba_max_states_per_path
            if self.mamba_strategy != "no_buffer":
                flags["mamba_track_interval"] = self.mamba_track_interval
        if self.states_alone:  # there is one strategy
            flags.pop("mamba_radix_cache_strategy", None)
        beside = (KVGroup("recurrent", 1, 0, state_bytes=1),)
        return PoolBeside(beside, states + 1, flags=flags, alone=self.states_alone)


class HybridSchedule(Case):
    """A schedule with two pools."""

    recognised_by: ClassVar[str] = "kind"

    requests: tuple[SglangRequest, ...]

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        engine = table.get("engine")
        return isinstance(engine, Mapping) and engine.get("kind") == cls.recognised_by

    def observer(
        self, by_step: deque[tuple[int, list[Request]]], *, stall_once: bool
    ) -> HybridRows:
        return HybridRows(by_step)

    def _spec(self, engine: "WindowsEngine | StatesEngine") -> ReplicaSpec:
        spec = engine.replica_spec()
        expected = engine.expect_running
        if expected is not None:
            scheduler = spec.build()
            assert isinstance(scheduler, SglangScheduler)
            found = scheduler.most_running
            if found != expected:
                raise InputError(
                    "this number of requests does not run at once under these settings",
                    where="engine.expect_running",
                    value=expected,
                    limit=found,
                )
        return spec


class WindowsCase(HybridSchedule):
    """A schedule with a pool of pages and a pool for sliding windows."""

    recognised_by: ClassVar[str] = "swa"

    engine: WindowsEngine

    def replica_spec(self) -> ReplicaSpec:
        return self._spec(self.engine)


class StatesCase(HybridSchedule):
    """A schedule with a pool of pages and a pool of recurrent states."""

    recognised_by: ClassVar[str] = "mamba"

    engine: StatesEngine

    def replica_spec(self) -> ReplicaSpec:
        return self._spec(self.engine)
