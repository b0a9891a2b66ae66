"""A schedule recorded from vLLM with OffloadingConnector, as input."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import model_validator

from evidence.schedule.offload.costs import TransferCost, connector_of
from evidence.schedule.offload.native import NativeOffload, TransferParams
from evidence.schedule.offload.rows import DiskRows, OffloadRows, StagedRows
from evidence.schedule.vllm.engine_settings import VllmEngine
from evidence.schedule.vllm.schedule import VllmRequest, VllmSchedule
from kvsim.engine.connectors.tiers import ConnectorPlan
from kvsim.engine.replica import ReplicaSpec
from kvsim.request import Request


class OffloadEngine(VllmEngine):
    """Settings of the recorded engine. offload: settings of its connector."""

    offload: NativeOffload


class OffloadRequest(VllmRequest):
    """A recorded request. kv_transfer_params: as sent by the client."""

    kv_transfer_params: TransferParams | None = None


class OffloadCase(VllmSchedule):
    """A schedule with vLLM's OffloadingConnector. transfer: durations of its copies."""

    recognised_by: ClassVar[str] = "offload"

    engine: OffloadEngine
    requests: tuple[OffloadRequest, ...]
    transfer: TransferCost

    @model_validator(mode="after")
    def _a_disk_takes_time(self) -> "OffloadCase":
        if self.engine.offload.tiers and self.transfer.disk is None:
            raise ValueError("an engine with tiers needs transfer.disk")
        return self

    @model_validator(mode="after")
    def _stages_have_bytes(self) -> "OffloadCase":
        stages = self.engine.pipeline_parallel_size
        if stages == 1:
            return self
        if any(len(group.stage_bytes) != stages for group in self.engine.offload.groups):
            raise ValueError("each group of an engine over stages needs stage_bytes of each")
        if self.engine.offload.tiers:
            raise ValueError("an engine over stages has host memory alone")
        return self

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        return connector_of(table) == "OffloadingConnector"

    def replica_spec(self) -> ReplicaSpec:
        limits = {
            name: request.kv_transfer_params.limits
            for request in self.requests
            for name in request.names()
            if request.kv_transfer_params is not None
        }
        connector = self.engine.offload.builder(self.engine, self.transfer, limits)
        return replace(super().replica_spec(), connector=ConnectorPlan(connector))

    def observer(
        self, by_step: deque[tuple[int, list[Request]]], *, stall_once: bool
    ) -> OffloadRows:
        by_group = len(self.engine.offload.groups) > 1
        overlaps = self.engine.async_scheduling or self.engine.pipeline_parallel_size > 1
        kind = DiskRows if self.engine.offload.tiers else OffloadRows
        if self.engine.pipeline_parallel_size > 1:
            kind = StagedRows
        return kind(
            by_step,
            stall_once=stall_once,
            by_group=by_group,
            overlaps=overlaps,
            encodes=self.engine.encoder_cache_size is not None,
        )
