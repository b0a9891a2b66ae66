"""Schedulers, one per file; this file lists them."""

from kvsim.engine.schedulers.options import SchedulerOptions
from kvsim.plumbing.registry import Registry

SCHEDULERS: Registry[SchedulerOptions] = Registry(
    "scheduler",
    {
        "continuous": "kvsim.engine.schedulers.continuous_options:Continuous",
        "orca": "kvsim.engine.schedulers.orca:Orca",
        "vllm-v0": "kvsim.engine.schedulers.vllm_v0:VllmV0",
        "trt-llm": "kvsim.engine.schedulers.trt_llm:TrtLlm",
        "sglang": "kvsim.engine.schedulers.sglang.options:Sglang",
        "llama-server": "kvsim.engine.schedulers.llama_server.options:LlamaServer",
        "static": "kvsim.engine.schedulers.static_batching:StaticBatching",
    },
)
