"""What a server and its clients leave behind: one file a format, and its line here.

They are tried in this order; a name can also be given. Nothing that a source holds of prompts,
answers, keys or tokens of access is kept.
"""

from kvsim.interchange.sources.source import Source
from kvsim.plumbing.registry import Registry

SOURCES: Registry[Source] = Registry(
    "source format",
    {
        "vllm-log": "kvsim.interchange.sources.vllm_log:VllmLog",
        "vllm-command": "kvsim.interchange.sources.vllm_command:VllmCommand",
        "vllm-metrics": "kvsim.interchange.sources.vllm_metrics:VllmMetrics",
        "vllm-bench": "kvsim.interchange.sources.vllm_bench:VllmBench",
        "sglang-log": "kvsim.interchange.sources.sglang_log:SGLangLog",
        "trtllm-log": "kvsim.interchange.sources.trtllm_log:TrtLlmLog",
        "aiperf": "kvsim.interchange.sources.aiperf:AIPerf",
        "guidellm": "kvsim.interchange.sources.guidellm:GuideLLM",
        "inference-perf": "kvsim.interchange.sources.inference_perf:InferencePerf",
        "blis-tracev2": "kvsim.interchange.sources.blis_tracev2:BlisTraceV2",
        "kv-events": "kvsim.interchange.sources.kv_events:KvEvents",
        "dynamo-trace": "kvsim.interchange.sources.dynamo_trace:DynamoTrace",
        "lmcache-lookup": "kvsim.interchange.sources.lmcache_lookup:LMCacheLookup",
        "otel-spans": "kvsim.interchange.sources.otel_spans:OtelSpans",
        "settings-json": "kvsim.interchange.sources.settings_json:SettingsJson",
        "requests-table": "kvsim.interchange.sources.requests_table:RequestsTable",
        "ticks-table": "kvsim.interchange.sources.ticks_table:TicksTable",
        "trace": "kvsim.interchange.sources.trace:RecordedTrace",
    },
)
