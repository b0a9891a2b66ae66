"""The options of vLLM's offloading connector as a tier."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.connectors.offloading.settings import OffloadedGroup, OffloadSettings
from kvsim.engine.connectors.offloading.tiered import TieredConnector
from kvsim.engine.connectors.offloading.worker import Worker
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.connectors.tiers import (
    ConnectorPlan,
    HostTierOptions,
    TierOptions,
    TierSite,
    refuse_behind,
)
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div
from kvsim.support.parts import EVERY_PART

OS_PAGE_BYTES = 4096


class VllmOffloading(HostTierOptions):
    """Chunks in host memory, stored as prompts are computed: vLLM's OffloadingConnector, which
    `--kv-offloading-size` asks for.

    kv_offloading_size: GiB of host memory, of all ranks and pipeline stages together.
    store_gb_per_s, load_gb_per_s: of the link out of a device and into it, GB (10**9 bytes) a
        second; not given: the device's to its host.
    latency_us: before each copy.
    blocks_per_chunk: blocks of the device in one chunk, the unit of storing.
    eviction_policy: which chunk leaves first: "lru" or "arc".
    store_threshold: content is stored from its n-th offer on, if n is 2 or more; max_tracker_size:
        number of contents that offers are counted for.
    offload_prompt_only: generated tokens are stored when a later request sends them as prompt.
    sync_load_budget_bytes: in each step, loads of at most this many bytes in sum start their
        requests at once, and the step waits for them. Other requests wait for their loads by
        themselves.
    """

    serves: ClassVar[frozenset[str]] = EVERY_PART

    blocks_per_chunk: int = Field(1, ge=1, le=1 << 20)
    eviction_policy: Literal["lru", "arc"] = "lru"
    store_threshold: int = Field(0, ge=0)
    max_tracker_size: int = Field(64_000, ge=1)
    offload_prompt_only: bool = True
    sync_load_budget_bytes: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _counts(self) -> Self:
        if self.store_threshold < 2 and self.changed(["max_tracker_size"]):
            raise ValueError("max_tracker_size changes nothing without store_threshold = 2 or more")
        return self

    def chunk_bytes(self, site: TierSite) -> int:
        """Bytes of a slot of host memory, for all ranks."""
        num_bytes = site.block_bytes * site.ranks * self.blocks_per_chunk
        return ceil_div(num_bytes, OS_PAGE_BYTES) * OS_PAGE_BYTES

    def connector(self, site: TierSite, behind: Sequence[TierOptions]) -> ConnectorPlan:
        chunk_bytes = self.chunk_bytes(site)
        slots = self.host_chunks("kv_offloading_size", chunk_bytes, "blocks_per_chunk = 1")
        groups = tuple(group._replace(chunk_blocks=self.blocks_per_chunk) for group in site.groups)
        self._check_groups(groups, site)
        full = {group.chunk_tokens for group in groups if group.reach_tokens is None}
        aligned = max(full or (group.chunk_tokens for group in groups))
        settings = OffloadSettings(
            groups,
            slots,
            self.eviction_policy,
            self.store_threshold,
            self.max_tracker_size,
            self.offload_prompt_only,
            self.sync_load_budget_bytes,
            site.prefix_caching,
            site.retention_tokens,
            aligned if len(full) < 2 else 0,
            host_bytes=slots * chunk_bytes,
        )
        chunk_tokens = tuple(group.chunk_tokens for group in groups)
        self._check_behind(behind, chunk_bytes, chunk_tokens)

        def build(shared: Shared) -> Connector:
            if site.stages:
                workers = [self._worker(site, at) for at in range(len(site.stages))]
                return OffloadingConnector(settings, *workers)
            worker = self._worker(site)
            if not behind:
                return OffloadingConnector(settings, worker)
            disk = behind[0].behind_host(chunk_bytes, chunk_tokens, shared)
            return TieredConnector(settings, worker, disk)

        return ConnectorPlan(build)

    def _worker(self, site: TierSite, stage: int | None = None) -> Worker:
        """The worker that copies for one rank. stage: index in the pipeline; None: one stage
        only.
        """
        num_bytes: tuple[int, ...] = ()
        if stage is not None:
            num_bytes, speed = site.stages[stage]
            site = site._replace(host_bytes_per_s=speed)
        return Worker(
            self.lane(self.store_gb_per_s, site),
            self.lane(self.load_gb_per_s, site),
            self.lane(self.load_gb_per_s, site),
            stage,
            num_bytes,
        )

    def _check_groups(self, groups: tuple[OffloadedGroup, ...], site: TierSite) -> None:
        """Raise InputError for options that do not work with several kinds of layers."""
        short = [group for group in groups if group.reach_tokens is not None]
        if short and self.sync_load_budget_bytes:
            raise InputError(
                "steps that wait for loads are simulated where all layers keep every token",
                where="tier.0.sync_load_budget_bytes",
                value=self.sync_load_budget_bytes,
                limit=0,
                remedy="leave it out",
            )
        for group in short:
            if site.retention_tokens and site.retention_tokens % group.chunk_tokens:
                raise InputError(
                    "retention keeps whole chunks of layers with a window or a state",
                    where="allocator.prefix_cache_retention_interval",
                    value=site.retention_tokens,
                    limit=f"a multiple of {group.chunk_tokens}",
                    remedy="change it, or blocks_per_chunk",
                )

    def _check_behind(
        self, behind: Sequence[TierOptions], chunk_bytes: int, chunk_tokens: tuple[int, ...]
    ) -> None:
        """Raise InputError for a tier that vLLM does not allow after host memory."""
        if not behind:
            return
        behind[0].behind_host(chunk_bytes, chunk_tokens, Shared())
        refuse_behind(behind[1:], "a file system", 2)
        if self.store_threshold >= 2:
            raise InputError(
                "vLLM refuses a threshold if another tier follows host memory",
                where="tier.0.store_threshold",
                value=self.store_threshold,
                limit="below 2",
                remedy="leave it out",
            )
