"""The options of LMCache's connector as a tier, as in LMCache 0.3."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.connectors.offloading.settings import OffloadSettings
from kvsim.engine.connectors.offloading.worker import Worker
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.connectors.tiers import (
    ConnectorPlan,
    LinkOptions,
    TierOptions,
    TierSite,
    refuse_behind,
)
from kvsim.plumbing.errors import InputError


class LMCacheTier(LinkOptions):
    """Chunks in host memory with copies that steps wait for: LMCacheConnectorV1 with `local_cpu`
    (LMCache 0.3, integration/vllm/vllm_v1_adapter.py). A step begins when its loads have ended, and
    the next one when what it computed is stored. Only whole chunks are stored and found.

    max_local_cpu_size: GiB of host memory, of each tensor-parallel rank.
    chunk_size: tokens of a chunk, a multiple of the device's block size.
    save_decode_cache: generated tokens are stored too.
    store_gb_per_s, load_gb_per_s: of the link out of a device and into it, GB (10**9 bytes) a
        second; not given: the device's to its host.
    latency_us: before each copy.
    """

    ranks_share: ClassVar[bool | None] = False

    max_local_cpu_size: float = Field(gt=0)
    chunk_size: int = Field(256, ge=1)
    save_decode_cache: bool = False

    def connector(self, site: TierSite, behind: Sequence[TierOptions]) -> ConnectorPlan:
        refuse_behind(behind, "LMCache's host memory")
        if len(site.groups) > 1:
            raise InputError(
                "LMCache 0.3 copies one block table, and the model has several",
                where="tier.0.kind",
                value=f"{len(site.groups)} tables",
                remedy="disable_hybrid_kv_cache_manager = true in [[allocator]]",
            )
        (group,) = site.groups
        if group.recurrent:
            raise InputError(
                "LMCache 0.3 copies tokens, and all layers keep recurrent states",
                where="tier.0.kind",
                value="lmcache",
                remedy='kind = "vllm-offloading"',
            )
        if self.chunk_size % group.block_tokens:
            raise InputError(
                "a chunk holds whole blocks of the device",
                where="tier.0.chunk_size",
                value=self.chunk_size,
                limit=f"a multiple of {group.block_tokens}",
                remedy="chunk_size = 256",
            )
        blocks = self.chunk_size // group.block_tokens
        chunk_bytes = site.block_bytes * blocks
        slots = self.host_chunks("max_local_cpu_size", chunk_bytes, "lower chunk_size")
        settings = OffloadSettings(
            (group._replace(chunk_blocks=blocks),),
            slots,
            prompt_only=not self.save_decode_cache,
            prefix_caching=site.prefix_caching,
            retention_tokens=site.retention_tokens,
            alignment_tokens=self.chunk_size,
            host_bytes=slots * chunk_bytes,
            synchronous=True,
            kind="lmcache",
        )

        def build(_: Shared) -> Connector:
            load = self.lane(self.load_gb_per_s, site)
            expedited = self.lane(self.load_gb_per_s, site)
            worker = Worker(self.lane(self.store_gb_per_s, site), load, expedited)
            return OffloadingConnector(settings, worker)

        return ConnectorPlan(build)
