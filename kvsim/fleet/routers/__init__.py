"""Routers of a fleet: one module each, registered here by one line each."""

from kvsim.fleet.routers.options import RouterOptions
from kvsim.plumbing.registry import Registry

ROUTERS: Registry[RouterOptions] = Registry(
    "router",
    {
        "round-robin": "kvsim.fleet.routers.round_robin:RoundRobin",
        "random": "kvsim.fleet.routers.random_choice:RandomChoice",
        "least-requests": "kvsim.fleet.routers.least_requests:LeastRequests",
        "power-of-two": "kvsim.fleet.routers.power_of_two:PowerOfTwo",
        "consistent-hash": "kvsim.fleet.routers.consistent_hash:ConsistentHash",
        "manual": "kvsim.fleet.routers.manual:Manual",
        "cache-aware": "kvsim.fleet.routers.cache_aware:CacheAware",
        "bucket": "kvsim.fleet.routers.bucket:Bucket",
        "dynamo-kv": "kvsim.fleet.routers.dynamo_kv:DynamoKv",
        "llm-d-epp": "kvsim.fleet.routers.llm_d_epp:LlmdEpp",
        "llm-d-sticky": "kvsim.fleet.routers.llm_d_sticky:LlmdSticky",
        "vllm-dp": "kvsim.fleet.routers.vllm_dp:VllmDp",
        "sglang-dp": "kvsim.fleet.routers.sglang_dp:SglangDp",
        "load-aware": "kvsim.fleet.routers.load_aware:LoadAware",
        "prefix-aware": "kvsim.fleet.routers.prefix_aware:PrefixAware",
        "aibrix-prefix": "kvsim.fleet.routers.aibrix_prefix:AibrixPrefix",
    },
)
