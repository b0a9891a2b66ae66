"""Readers of other tools' files; each reader is one file, with one line here.

A reader says how it recognises its file and what the file gives. That is the server (configuration,
pool, flags), the stream of requests, or measurements (latencies, metrics). A `Source` describes one
server as far as the file goes (`kvsim import` merges several). `RecordedRuns` are whole runs
(`kvsim validate runs`, `kvsim doctor`). Readers are tried in the order of the list; a user can also
choose one by FORMAT=PATH.

Formats that hold only requests, which workloads replay and `kvsim convert` writes, are in
`kvsim.workload.traces`; the reader `trace` covers all of them. Prompts, answers, API keys and
access tokens are never stored.

    reader.py       the interface of a reader     detect.py   which reader fits a file
    description.py  what a source gives           parsing/    bounded values from text
"""

from kvsim.plumbing.registry import Registry
from kvsim.readers.reader import Reader

READERS: Registry[Reader] = Registry(
    "reader",
    {
        "trtllm-config": "kvsim.readers.trtllm.config:TrtLlmConfig",
        "vllm-log": "kvsim.readers.vllm.log:VllmLog",
        "vllm-config": "kvsim.readers.vllm.config:VllmConfig",
        "vllm-command": "kvsim.readers.vllm.command:VllmCommand",
        "vllm-metrics": "kvsim.readers.vllm.metrics:VllmMetricsScrape",
        "vllm-bench": "kvsim.readers.vllm.bench:VllmBenchResult",
        "bench-text": "kvsim.readers.vllm.bench_text:PrintedBench",
        "sglang-log": "kvsim.readers.sglang.log:SGLangLog",
        "sglang-metrics": "kvsim.readers.sglang.metrics:SGLangMetrics",
        "sglang-answer": "kvsim.readers.sglang.answer:SGLangAnswer",
        "sglang-command": "kvsim.readers.sglang.command:SGLangCommand",
        "trtllm-log": "kvsim.readers.trtllm.log:TrtLlmLog",
        "trtllm-command": "kvsim.readers.trtllm.command:TrtLlmCommand",
        "llama-log": "kvsim.readers.llamacpp.log:LlamaLog",
        "llama-command": "kvsim.readers.llamacpp.command:LlamaCommand",
        "llama-answer": "kvsim.readers.llamacpp.served:LlamaAnswer",
        "llama-metrics": "kvsim.readers.llamacpp.served:LlamaMetrics",
        "ollama": "kvsim.readers.llamacpp.ollama:OllamaEnvironment",
        "aiperf": "kvsim.readers.aiperf.artifacts:AIPerfArtifacts",
        "llmperf": "kvsim.readers.llmperf:LLMPerf",
        "guidellm": "kvsim.readers.guidellm:GuideLLM",
        "inference-perf": "kvsim.readers.inference_perf:InferencePerf",
        "blis-tracev2": "kvsim.readers.blis_tracev2:BlisTraceV2",
        "kv-events": "kvsim.readers.vllm.kv_events:KvEvents",
        "dynamo-trace": "kvsim.readers.dynamo_trace:DynamoTrace",
        "lmcache-lookup": "kvsim.readers.lmcache_lookup:LMCacheLookup",
        "otel-spans": "kvsim.readers.vllm.otel_spans:OtelSpans",
        "model-config": "kvsim.readers.model_config:ModelConfig",
        "settings-json": "kvsim.readers.vllm.settings_json:SettingsJson",
        "requests-table": "kvsim.readers.requests_table:RequestsTable",
        "ticks-table": "kvsim.readers.ticks_table:TicksTable",
        "trace": "kvsim.readers.trace:RecordedTrace",
        "blis-training": "kvsim.readers.published.blis_training:BlisTraining",
        "residency": "kvsim.readers.published.residency:Residency",
        "inferencex": "kvsim.readers.published.inferencex:InferenceX",
        "rate-stages": "kvsim.readers.published.rate_stages:RateStages",
        "all-at-once": "kvsim.readers.published.all_at_once:AllAtOnce",
        "observed": "kvsim.readers.observed_run:ObservedRunFolder",
    },
    former_names=("source format", "collection"),
)
