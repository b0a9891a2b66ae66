"""The options of vLLM's Simple connector as a tier."""

from collections.abc import Sequence
from typing import ClassVar

from kvsim.engine.connectors.offloading.settings import OffloadedGroup
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.connectors.simple.connector import SimpleConnector
from kvsim.engine.connectors.simple.settings import SimpleGroup, SimpleSettings
from kvsim.engine.connectors.tiers import (
    ConnectorPlan,
    HostTierOptions,
    TierOptions,
    TierSite,
    refuse_behind,
)
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB, ceil_div
from kvsim.support.parts import DRAFTS, SPECIAL
from kvsim.vllm.rules import FIRST_BLOCK


class VllmSimpleOffloading(HostTierOptions):
    """A second pool of blocks in host memory: vLLM's SimpleCPUOffloadConnector, which the
    environment variable VLLM_USE_SIMPLE_KV_OFFLOAD=1 asks for. Generated tokens are stored, too.

    kv_offloading_size: GiB of host memory, of all tensor-parallel ranks together.
    store_gb_per_s, load_gb_per_s: of the link out of a device and into it, GB (10**9 bytes) a
        second; not given: the device's to its host.
    latency_us: before each copy.
    lazy_offload: only what the device is about to forget is stored; else all that is computed.
    """

    serves: ClassVar[frozenset[str]] = frozenset((DRAFTS, SPECIAL))

    lazy_offload: bool = False

    def connector(self, site: TierSite, behind: Sequence[TierOptions]) -> ConnectorPlan:
        refuse_behind(behind, "the Simple connector")
        whole = any(group.reach_tokens is None for group in site.groups)
        if not site.prefix_caching or not whole:
            raise _refused(
                "the Simple connector needs a prefix cache on the device, and layers that keep "
                "every token"
            )
        chunked = any(group.chunked for group in site.groups)
        if chunked or len({group.block_tokens for group in site.groups}) > 1:
            raise _refused(
                "the Simple connector is not simulated with chunks of local attention, or with "
                "blocks of several sizes"
            )
        blocks = int(self.kv_offloading_size * GIB) // (site.block_bytes * site.ranks)
        if blocks <= FIRST_BLOCK:
            raise InputError(
                "host memory holds no block but the null block",
                where="tier.0.kv_offloading_size",
                value=f"{self.kv_offloading_size:g} GiB",
                limit=f"at least {(FIRST_BLOCK + 1) * site.block_bytes * site.ranks:,} bytes",
                remedy="raise it",
            )
        size = site.groups[0].block_tokens
        settings = SimpleSettings(
            size,
            site.block_bytes,
            blocks,
            self.lazy_offload,
            2 * sum(_lazy_blocks(group, site.max_num_batched_tokens) for group in site.groups),
            blocks * site.block_bytes * site.ranks,
            _simple_groups(site.groups),
        )

        def build(_: Shared) -> SimpleConnector:
            store = self.lane(self.store_gb_per_s, site)
            return SimpleConnector(settings, store, self.lane(self.load_gb_per_s, site))

        return ConnectorPlan(build, holds=True)


def _refused(reason: str) -> InputError:
    return InputError(
        reason,
        where="tier.0.kind",
        value="vllm-simple-offloading",
        remedy='kind = "vllm-offloading"',
    )


def _lazy_blocks(group: OffloadedGroup, max_num_batched_tokens: int) -> int:
    """Blocks of one layer group that a step may allocate. Lazy stores look at twice as many free
    blocks.
    """
    if group.reach_tokens is None:
        return ceil_div(max_num_batched_tokens, group.block_tokens)
    return 2 if group.recurrent else ceil_div(group.reach_tokens, group.block_tokens) + 1


def _simple_groups(groups: tuple[OffloadedGroup, ...]) -> tuple[SimpleGroup, ...]:
    """The layer groups as the connector looks them up: equal groups have one `kind`."""
    kinds = list(dict.fromkeys(groups))
    return tuple(
        SimpleGroup(kinds.index(group), group.reach_tokens, group.drafts) for group in groups
    )
