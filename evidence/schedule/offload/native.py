"""Settings of vLLM's OffloadingConnector in a recorded schedule, and the connector they give."""

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import Field

from evidence.schedule.offload.costs import TransferCost
from evidence.schedule.ticks import TICK_PS
from evidence.schedule.vllm.engine_settings import VllmEngine, VllmGroup
from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.connectors.offloading.disk import Disk
from kvsim.engine.connectors.offloading.settings import OffloadedGroup, OffloadSettings
from kvsim.engine.connectors.offloading.tiered import TieredConnector
from kvsim.engine.connectors.offloading.worker import Worker
from kvsim.engine.connectors.shared import Shared
from kvsim.plumbing.options import Options


class RecordedGroup(Options):
    """A KV cache group as the connector sees it. stage_bytes: bytes of a block on each pipeline
    stage. block_bytes: bytes of a block on the first stage.
    """

    group: int
    tokens_per_block: int = Field(ge=1)
    tokens_per_chunk: int = Field(ge=1)
    block_bytes: int = Field(ge=1)
    window_chunks: int | None = None
    stage_bytes: tuple[int, ...] = ()


def reach_of(group: VllmGroup) -> int | None:
    """Tokens that the group's layers look back; None for full attention, 0 for recurrent states."""
    if group.kind == "recurrent":
        return 0
    return group.window_tokens if group.chunk_tokens is None else group.chunk_tokens


class RecordedTier(Options):
    """A file-system tier after host memory."""

    type: Literal["fs"]
    chunk_bytes: int = Field(ge=1)
    read_threads: int = Field(ge=1)
    write_threads: int = Field(ge=1)


class NativeOffload(Options):
    """Settings of OffloadingConnector, as vLLM resolved them."""

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

    def builder(
        self,
        engine: VllmEngine,
        transfer: TransferCost,
        limits: Mapping[str, tuple[int | None, int | None]],
    ) -> Callable[[Shared], Connector]:
        """A function that builds the connector of such an engine. limits: see `OffloadSettings`."""
        kinds = [group for group in engine.kv_groups for _ in range(group.groups)]
        groups = tuple(
            OffloadedGroup(
                each.tokens_per_block,
                each.tokens_per_chunk // each.tokens_per_block,
                each.block_bytes,
                reach_of(kinds[each.group]),
                kinds[each.group].chunk_tokens is not None,
                bool(kinds[each.group].drops),
            )
            for each in self.groups
        )
        settings = OffloadSettings(
            groups,
            self.cpu_chunks,
            self.policy,
            self.store_threshold,
            self.max_tracker_size,
            self.prompt_only,
            self.sync_load_budget_bytes,
            engine.prefix_caching,
            self.retention,
            self.alignment_tokens,
            limits=limits,
        )

        def build(_: Shared) -> Connector:
            if engine.pipeline_parallel_size > 1:
                workers = self._workers(engine.pipeline_parallel_size, transfer)
                return transfer.timed(OffloadingConnector(settings, *workers))
            worker = Worker(transfer.store.lane(), transfer.load.lane(), transfer.load.lane())
            worker.tick_ps = TICK_PS
            return transfer.timed(self._over(settings, worker, transfer))

        return build

    def _workers(self, stages: int, transfer: TransferCost) -> tuple[Worker, ...]:
        made = []
        for stage in range(stages):
            store, load, expedited = transfer.store, transfer.load, transfer.load
            num_bytes = tuple(group.stage_bytes[stage] for group in self.groups)
            worker = Worker(store.lane(), load.lane(), expedited.lane(), stage, num_bytes)
            worker.tick_ps = TICK_PS
            made.append(worker)
        return tuple(made)

    def _over(
        self, settings: OffloadSettings, worker: Worker, transfer: TransferCost
    ) -> OffloadingConnector:
        """The connector over host memory, with the file-system tier if one was recorded."""
        cost = transfer.disk
        if not self.tiers or cost is None:
            return OffloadingConnector(settings, worker)
        (tier,) = self.tiers
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


class TransferParams(Options):
    """A request's parameters for the connector: most tokens to load, and most to store."""

    max_load_tokens: int | None = Field(None, ge=0)
    max_offload_tokens: int | None = Field(None, ge=0)

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """(most tokens to load, most tokens to store); None: unlimited."""
        return self.max_load_tokens, self.max_offload_tokens
