"""Rules that choose the sequence to preempt, one per file; this file lists them."""

from kvsim.engine.policies.victims.victim import Victim
from kvsim.plumbing.registry import Registry

VICTIMS: Registry[Victim] = Registry(
    "victim",
    {
        "latest": "kvsim.engine.policies.victims.latest:Latest",
        "lowest-priority": "kvsim.engine.policies.victims.lowest_priority:LowestPriority",
        "least-computed": "kvsim.engine.policies.victims.least_computed:LeastComputed",
        "least-recomputed": "kvsim.engine.policies.victims.least_recomputed:LeastRecomputed",
    },
)
