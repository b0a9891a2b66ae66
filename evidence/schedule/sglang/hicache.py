"""A schedule recorded from SGLang with its hierarchical cache (HiCache)."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from evidence.schedule.sglang.hicache_rows import HicacheRows
from evidence.schedule.sglang.schedule import SglangSchedule
from evidence.schedule.ticks import MOST_TICKS, TICK_PS, CaseCost
from kvsim.engine.connectors.lane import Lane
from kvsim.engine.hicache.copies import HostLink
from kvsim.engine.hicache.hierarchy import Hierarchy
from kvsim.engine.hicache.settings import StorageSettings
from kvsim.engine.replica import ReplicaSpec
from kvsim.memory.radix.hicache.options import PrefetchPolicy, WritePolicy
from kvsim.memory.radix.options import Radix
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Request

Ticks = Field(0, ge=0, le=MOST_TICKS)
MOST_LAYERS = 1 << 12


class HicacheCost(CaseCost):
    """Ticks of copies, in addition to those of a step.

    A write takes w_a + w_b * tokens, a load l_a + l_b * tokens for each of `layers` layers. In the
    storage a query takes q_a + q_b * pages, a read g_a + g_b * pages, a write s_a + s_b * pages.
    second: ticks per second.
    """

    layers: int = Field(ge=1, le=MOST_LAYERS)
    w_a: int = Field(ge=0, le=MOST_TICKS)
    w_b: int = Field(ge=0, le=MOST_TICKS)
    l_a: int = Field(ge=0, le=MOST_TICKS)
    l_b: int = Field(ge=0, le=MOST_TICKS)
    q_a: int = Ticks
    q_b: int = Ticks
    g_a: int = Ticks
    g_b: int = Ticks
    s_a: int = Ticks
    s_b: int = Ticks
    second: int = Field(1_000_000, ge=1, le=MOST_TICKS)


class TickTimes:
    """The recorded durations of a storage, in the form that the engine reads."""

    def __init__(self, cost: HicacheCost) -> None:
        self._cost = cost

    def query_ps(self, pages: int) -> int:
        return (self._cost.q_a + self._cost.q_b * pages) * TICK_PS

    def read_ps(self, pages: int) -> int:
        return (self._cost.g_a + self._cost.g_b * pages) * TICK_PS

    def store_ps(self, pages: int) -> int:
        return (self._cost.s_a + self._cost.s_b * pages) * TICK_PS


class HicacheSettings(Options):
    """Settings of the recorded HiCache. ratio: host pool's size over the device pool's."""

    write_policy: WritePolicy
    ratio: float = Field(gt=0)
    storage: bool = False
    prefetch_policy: PrefetchPolicy = "timeout"
    prefetch_threshold: int = Field(256, ge=0)
    prefetch_timeout_base: float = Field(1.0, ge=0)
    prefetch_timeout_per_ki_token: float = Field(0.25, ge=0)
    retry_poll_interval: int = Field(8, ge=1)
    retry_max_attempts: int = Field(8, ge=0)

    def pages(self, page_size: int) -> Radix:
        """The radix cache with these settings."""
        return Radix.parse(
            {
                "page_size": page_size,
                "enable_hierarchical_cache": True,
                "hicache_ratio": self.ratio,
                "hicache_write_policy": self.write_policy,
            },
            "hicache",
        )


def ticked_link(write: tuple[int, int], load: tuple[int, int], layers: int) -> HostLink:
    """A link on which a write takes write[0] + write[1] * tokens ticks, and a load load[0] +
    load[1] * tokens ticks per layer.
    """
    # A byte takes a tick, and a token has as many bytes as it takes ticks.
    bytes_per_s = PS_PER_S // TICK_PS
    return HostLink(
        Lane(write[0] * TICK_PS, bytes_per_s),
        Lane(load[0] * TICK_PS, bytes_per_s),
        write[1],
        load[1],
        layers,
        TICK_PS,
    )


class HicacheCase(SglangSchedule):
    """A schedule of an SGLang engine with HiCache."""

    hicache: HicacheSettings
    cost: HicacheCost

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        return super().recognises(table) and "hicache" in table

    def replica_spec(self) -> ReplicaSpec:
        given, cost = self.hicache, self.cost
        link = ticked_link((cost.w_a, cost.w_b), (cost.l_a, cost.l_b), cost.layers)
        hierarchy = Hierarchy(link, TickTimes(cost) if given.storage else None, self._storage())
        allocator = given.pages(self.engine.page_size)
        return replace(super().replica_spec(), allocator=allocator, hicache=hierarchy)

    def _storage(self) -> StorageSettings:
        given, second_ps = self.hicache, self.cost.second * TICK_PS
        return StorageSettings(
            given.prefetch_policy,
            given.prefetch_threshold,
            round(given.prefetch_timeout_base * second_ps),
            round(given.prefetch_timeout_per_ki_token * second_ps),
            given.retry_poll_interval,
            given.retry_max_attempts,
        )

    def observer(
        self, by_step: deque[tuple[int, list[Request]]], *, stall_once: bool
    ) -> HicacheRows:
        return HicacheRows(by_step, storage=self.hicache.storage)
