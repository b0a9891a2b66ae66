"""Who runs when: one file a scheduler, and its line here."""

from kvsim.engine.scheduler import SchedulerOptions
from kvsim.registry import Registry

SCHEDULERS: Registry[SchedulerOptions] = Registry(
    "scheduler",
    {
        "continuous": "kvsim.engine.continuous:Continuous",
        "orca": "kvsim.engine.orca:Orca",
        "vllm-v0": "kvsim.engine.vllm_v0:VllmV0",
        "trt-llm": "kvsim.engine.trt_llm:TrtLlm",
        "static": "kvsim.engine.static_batching:StaticBatching",
    },
)
