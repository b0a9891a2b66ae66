"""Eviction policies of the prefix cache: one module each, registered here by one line each."""

from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.plumbing.registry import Registry

EVICTION_POLICIES: Registry[EvictionPolicy] = Registry(
    "eviction policy",
    {
        "lru": "kvsim.memory.paged.eviction.lru:Lru",
        "tail-first": "kvsim.memory.paged.eviction.tail_first:TailFirst",
        "slru": "kvsim.memory.paged.eviction.slru:Slru",
        "arc": "kvsim.memory.paged.eviction.arc:Arc",
        "cost-aware": "kvsim.memory.paged.eviction.cost_aware:CostAware",
        "session-hints": "kvsim.memory.paged.eviction.session_hints:SessionHints",
        "priorities": "kvsim.memory.paged.eviction.priorities:Priorities",
        "pinned-sessions": "kvsim.memory.paged.eviction.pinned_sessions:PinnedSessions",
    },
)
