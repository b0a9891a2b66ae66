"""Schedule policies of SGLang, one per file; this file lists them by SGLang's names."""

from typing import Annotated

from kvsim.engine.schedulers.sglang.policies.policy import SchedulePolicy
from kvsim.plumbing.choice import NameOf
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.registry import Registry

SCHEDULE_POLICIES: Registry[SchedulePolicy] = Registry(
    "schedule policy",
    {
        "fcfs": "kvsim.engine.schedulers.sglang.policies.fcfs:Fcfs",
        "lpm": "kvsim.engine.schedulers.sglang.policies.lpm:Lpm",
        "dfs-weight": "kvsim.engine.schedulers.sglang.policies.dfs_weight:DfsWeight",
        "lof": "kvsim.engine.schedulers.sglang.policies.lof:Lof",
        "hrrn": "kvsim.engine.schedulers.sglang.policies.hrrn:Hrrn",
        "shortest-prefill-first": (
            "kvsim.engine.schedulers.sglang.policies.shortest_prefill_first:ShortestPrefillFirst"
        ),
        "routing-key": "kvsim.engine.schedulers.sglang.policies.routing_key:RoutingKey",
        "random": "kvsim.engine.schedulers.sglang.policies.random_order:RandomOrder",
    },
)
PolicyName = Annotated[str, NameOf(SCHEDULE_POLICIES, "scheduler.schedule_policy")]


def policy_of(name: str, *, cached: bool) -> SchedulePolicy:
    """The policy of this name. cached: the pool has a prefix cache; without one SGLang replaces or
    refuses some policies (`_validate_and_adjust_policy`).
    """
    policy = SCHEDULE_POLICIES.parse({"kind": name}, "scheduler.schedule_policy")
    if cached or policy.without_cache == "":
        return policy
    if policy.without_cache is None:
        raise InputError(
            "it needs a prefix cache, as SGLang says",
            where="scheduler.schedule_policy",
            value=name,
            remedy="leave disable_radix_cache out, or take another policy",
        )
    return policy_of(policy.without_cache, cached=False)
