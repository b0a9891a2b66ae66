"""KV connectors of vLLM's scheduler: the interface, and its implementations."""

from typing import TYPE_CHECKING

from kvsim.plumbing.registry import Registry

if TYPE_CHECKING:
    from kvsim.engine.connectors.tiers import TierOptions

TIERS: "Registry[TierOptions]" = Registry(
    "tier",
    {
        "vllm-offloading": "kvsim.engine.connectors.offloading.options:VllmOffloading",
        "vllm-simple-offloading": "kvsim.engine.connectors.simple.options:VllmSimpleOffloading",
        "lmcache": "kvsim.engine.connectors.offloading.lmcache:LMCacheTier",
        "file-system": "kvsim.engine.connectors.offloading.disk_options:FileSystemTier",
    },
)
