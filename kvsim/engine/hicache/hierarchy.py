"""The memories of an SGLang server after its device: host memory, and perhaps an L3 storage."""

from typing import NamedTuple

from kvsim.engine.connectors.lane import Lane
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.hicache.contents import StorageContents
from kvsim.engine.hicache.copies import HostLink, TierCopies
from kvsim.engine.hicache.hicache import Hicache
from kvsim.engine.hicache.settings import StorageSettings
from kvsim.engine.hicache.storage import Storage
from kvsim.engine.hicache.storage_times import StorageSpeed, StorageTimes
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.layout import KVLayout
from kvsim.memory.options import AllocatorOptions
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.options import Radix
from kvsim.plumbing.units import PS_PER_S, PS_PER_US, ceil_div
from kvsim.support.parts import ServerParts
from kvsim.support.table import check

GB = 10**9
STORAGE_GB_PER_S, STORAGE_LATENCY_US = 5.0, 100.0  # unless given


class Hierarchy(NamedTuple):
    """Settings of the hierarchical cache.

    link: link between device and host memory. times: durations of storage operations; None: there
    is no storage. settings: of the storage. shared: all replicas of a fleet share one storage.
    """

    link: HostLink
    times: StorageTimes | None = None
    settings: StorageSettings = StorageSettings()
    shared: bool = False

    def connect(self, hicache: Hicache, shared: Shared) -> None:
        """Give a scheduler that has not run its copies and storage; InputError if replicas cannot
        share the storage.
        """
        pages = hicache.pages
        copies = hicache.copies = TierCopies(pages, self.link)
        if self.times is not None:
            contents = _contents(pages, shared) if self.shared else None
            hicache.storage = Storage(pages, copies, self.times, self.settings, contents)


def _contents(pages: RadixAllocator, shared: Shared) -> StorageContents:
    tokens = pages.page_tokens
    return shared.part(
        "allocator.hicache_storage_shared",
        f"pages of {tokens} tokens and {tokens * pages.token_bytes:,} bytes",
        lambda: StorageContents(tokens),
    )


def check_hierarchy(scheduler: Scheduler) -> None:
    """Raise InputError if a scheduler other than SGLang's runs over a hierarchical cache."""
    allocator = scheduler.allocator
    if not (isinstance(allocator, RadixAllocator) and allocator.tree.host.tokens):
        return
    if isinstance(scheduler, SglangScheduler) and isinstance(scheduler.hicache, Hicache):
        return
    check(ServerParts(hicache=True, sglang=False))


def hierarchy_of(options: AllocatorOptions, layout: KVLayout, host_bytes_per_s: int) -> Hierarchy:
    """The hierarchy that the allocator's options describe.

    host_bytes_per_s: rate of the device's link to host memory, in each direction.
    """
    assert isinstance(options, Radix)
    token_bytes = layout.bytes_per_token
    layers = sum(group.layers for group in layout.groups)
    latency_ps = round(options.hicache_copy_latency_us * PS_PER_US)
    write, load = options.hicache_write_gb_per_s, options.hicache_load_gb_per_s
    link = HostLink(
        Lane(latency_ps, host_bytes_per_s if write is None else round(write * GB)),
        Lane(latency_ps, host_bytes_per_s if load is None else round(load * GB)),
        token_bytes,
        ceil_div(token_bytes, layers),
        layers,
    )
    if options.hicache_storage_backend is None:
        return Hierarchy(link)
    extra, latency_us = options.hicache_storage_backend_extra_config, options.storage_latency_us
    speed = StorageSpeed(
        round((STORAGE_LATENCY_US if latency_us is None else latency_us) * PS_PER_US),
        round((options.storage_read_gb_per_s or STORAGE_GB_PER_S) * GB),
        round((options.storage_write_gb_per_s or STORAGE_GB_PER_S) * GB),
        token_bytes * options.page_tokens,
    )
    settings = StorageSettings(
        options.hicache_storage_prefetch_policy,
        extra.prefetch_threshold,
        round(extra.prefetch_timeout_base * PS_PER_S),
        round(extra.prefetch_timeout_per_ki_token * PS_PER_S),
        extra.retry_poll_interval,
        extra.retry_max_attempts,
    )
    return Hierarchy(link, speed, settings, options.hicache_storage_shared)
