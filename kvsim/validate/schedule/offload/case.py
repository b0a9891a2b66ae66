"""A schedule recorded from vLLM with an offloading connector, as input."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.connectors.offloading.disk import Disk
from kvsim.engine.connectors.offloading.settings import OffloadedGroup, OffloadSettings
from kvsim.engine.connectors.offloading.tiered import TieredConnector
from kvsim.engine.connectors.offloading.worker import Worker
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.replica import ReplicaSpec
from kvsim.plumbing.options import Options
from kvsim.request import Request
from kvsim.validate.schedule.offload.costs import TransferCost, connector_of
from kvsim.validate.schedule.offload.rows import DiskRows, OffloadRows
from kvsim.validate.schedule.ticks import TICK_PS
from kvsim.validate.schedule.vllm.engine_settings import VllmEngine, VllmGroup
from kvsim.validate.schedule.vllm.schedule import VllmRequest, VllmSchedule


class RecordedGroup(Options):
    """A group of layers as the connector saw it."""

    group: int
    tokens_per_block: int = Field(ge=1)
    tokens_per_chunk: int = Field(ge=1)
    block_bytes: int = Field(ge=1)
    window_chunks: int | None = None


def _reach_of(group: VllmGroup) -> int | None:
    """How far layers look back; 0: they have a recurrent state."""
    if group.kind == "recurrent":
        return 0
    return group.window_tokens if group.chunk_tokens is None else group.chunk_tokens


class RecordedTier(Options):
    """A folder of files behind host memory."""

    type: Literal["fs"]
    chunk_bytes: int = Field(ge=1)
    read_threads: int = Field(ge=1)
    write_threads: int = Field(ge=1)


class NativeOffload(Options):
    """The native connector's settings, as vLLM resolved them."""

    connector: Literal["OffloadingConnector"]
    cpu_chunks: int = Field(ge=1)
    blocks_per_chunk: int = Field(ge=1)
    chunk_bytes: int = Field(ge=1)
    policy: Literal["lru", "arc"]
    store_threshold: int = Field(ge=0)
    max_tracker_size: int = Field(64_000, ge=1)
    prompt_only: bool
    sync_load_budget_bytes: int = Field(ge=0)
    deferred_frees: bool = False
    model_runner_v2: bool = True
    retention: int | None = None
    alignment_tokens: int = Field(1, ge=1)
    groups: tuple[RecordedGroup, ...]
    tiers: tuple[RecordedTier, ...] = Field((), max_length=1)


class OffloadEngine(VllmEngine):
    """offload: the connector's settings."""

    offload: NativeOffload


class TransferParams(Options):
    """What a request asks of the connector: at most so many tokens loaded, and stored."""

    max_load_tokens: int | None = Field(None, ge=0)
    max_offload_tokens: int | None = Field(None, ge=0)


class OffloadRequest(VllmRequest):
    """kv_transfer_params: as the client sends them."""

    kv_transfer_params: TransferParams | None = None


class OffloadCase(VllmSchedule):
    """A schedule with vLLM's OffloadingConnector. transfer: how long its copies take."""

    recognised_by: ClassVar[str] = "offload"

    engine: OffloadEngine
    requests: tuple[OffloadRequest, ...]
    transfer: TransferCost

    @model_validator(mode="after")
    def _a_disk_takes_time(self) -> "OffloadCase":
        if self.engine.offload.tiers and self.transfer.disk is None:
            raise ValueError("an engine with tiers needs transfer.disk")
        return self

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        return connector_of(table) == "OffloadingConnector"

    def replica_spec(self) -> ReplicaSpec:
        spec = super().replica_spec()
        return spec.with_connector(self._connector())

    def _connector(self) -> Callable[[Shared], Connector]:
        offload, transfer = self.engine.offload, self.transfer
        kinds = [group for group in self.engine.kv_groups for _ in range(group.groups)]
        groups = tuple(
            OffloadedGroup(
                each.tokens_per_block,
                each.tokens_per_chunk // each.tokens_per_block,
                each.block_bytes,
                _reach_of(kinds[each.group]),
                kinds[each.group].chunk_tokens is not None,
            )
            for each in offload.groups
        )
        limits = {
            name: (
                request.kv_transfer_params.max_load_tokens,
                request.kv_transfer_params.max_offload_tokens,
            )
            for request in self.requests
            for name in request.names()
            if request.kv_transfer_params is not None
        }
        settings = OffloadSettings(
            groups,
            offload.cpu_chunks,
            offload.policy,
            offload.store_threshold,
            offload.max_tracker_size,
            offload.prompt_only,
            offload.sync_load_budget_bytes,
            self.engine.prefix_caching,
            offload.retention,
            offload.alignment_tokens,
            limits=limits,
        )

        def build(_: Shared) -> Connector:
            worker = Worker(transfer.store.lane(), transfer.load.lane(), transfer.load.lane())
            worker.tick_ps = TICK_PS
            return transfer.timed(self._over(settings, worker))

        return build

    def _over(self, settings: OffloadSettings, worker: Worker) -> OffloadingConnector:
        """The connector over host memory, or that with files behind it."""
        tiers, cost = self.engine.offload.tiers, self.transfer.disk
        if not tiers or cost is None:
            return OffloadingConnector(settings, worker)
        (tier,) = tiers
        disk = Disk(
            cost.read.lane(),
            cost.write.lane(),
            tier.chunk_bytes,
            cost.lookup * TICK_PS,
            tier.read_threads,
            tier.write_threads,
        )
        disk.tick_ps = TICK_PS
        return TieredConnector(settings, worker, disk)

    def observer(
        self, by_step: deque[tuple[int, list[Request]]], *, stall_once: bool
    ) -> OffloadRows:
        by_group = len(self.engine.offload.groups) > 1
        overlaps = self.engine.async_scheduling
        kind = DiskRows if self.engine.offload.tiers else OffloadRows
        return kind(by_step, stall_once=stall_once, by_group=by_group, overlaps=overlaps)
