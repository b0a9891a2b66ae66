"""A schedule recorded from vLLM with SimpleCPUOffloadConnector, as input."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from evidence.schedule.offload.costs import TransferCost, connector_of
from evidence.schedule.offload.native import reach_of
from evidence.schedule.offload_simple.rows import RecordedNames, SimpleRows
from evidence.schedule.ticks import TICK_PS
from evidence.schedule.vllm.engine_settings import VllmEngine
from evidence.schedule.vllm.schedule import VllmSchedule
from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.connectors.simple.connector import SimpleConnector
from kvsim.engine.connectors.simple.settings import SimpleGroup, SimpleSettings
from kvsim.engine.connectors.tiers import ConnectorPlan
from kvsim.engine.replica import ReplicaSpec
from kvsim.plumbing.options import Options
from kvsim.request import Request


class SimpleOffload(Options):
    """Settings of SimpleCPUOffloadConnector, as vLLM resolved them."""

    connector: Literal["SimpleCPUOffloadConnector"]
    cpu_blocks: int = Field(ge=2)
    cpu_chunks: int | None = None
    block_bytes: int = Field(ge=1)
    lazy: bool
    lazy_target: int = Field(0, ge=0)
    deferred_frees: bool = False


class SimpleEngine(VllmEngine):
    """Settings of the recorded engine. offload: settings of its connector."""

    offload: SimpleOffload


class SimpleCase(VllmSchedule):
    """A schedule with vLLM's SimpleCPUOffloadConnector. transfer: durations of its copies."""

    recognised_by: ClassVar[str] = "offload"

    engine: SimpleEngine
    transfer: TransferCost

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        return connector_of(table) == "SimpleCPUOffloadConnector"

    def replica_spec(self) -> ReplicaSpec:
        offload, cost = self.engine.offload, self.transfer
        settings = SimpleSettings(
            self.engine.block_size,
            offload.block_bytes,
            offload.cpu_blocks,
            offload.lazy,
            offload.lazy_target,
            groups=self._groups(),
        )

        def build(_: Shared) -> Connector:
            connector = SimpleConnector(settings, cost.store.lane(), cost.load.lane())
            connector.tick_ps = TICK_PS
            return cost.timed(connector)

        plan = ConnectorPlan(build, holds=True)
        return replace(super().replica_spec(), connector=plan)

    def _groups(self) -> tuple[SimpleGroup, ...]:
        listed, speculative = self.engine.kv_groups, self.engine.speculative
        drops = speculative is not None and speculative.drop_last_block
        known = any(group.drops for group in listed)
        return tuple(
            SimpleGroup(
                kind,
                reach_of(group),
                drops and (group.drops or not known) and group.kind != "recurrent",
            )
            for kind, group in enumerate(listed)
            for _ in range(group.groups)
        )

    def observer(
        self, by_step: deque[tuple[int, list[Request]]], *, stall_once: bool
    ) -> SimpleRows:
        groups = len(self._groups())
        blocks = RecordedNames(self.requests, self.engine.block_size, groups)
        overlaps = self.engine.async_scheduling
        alone = self.engine.speculative is None and len(self.engine.kv_groups) == 1
        return SimpleRows(
            by_step, blocks, stall_once=stall_once, overlaps=overlaps, sorts_loads=alone
        )
