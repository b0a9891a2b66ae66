"""One small file of each source format, in its producer's documented form, with secrets in it."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from support.kv_publisher import frame, structs

SECRET, PROMPT = "sk-not-to-be-seen", "the quick brown prompt"
UNIX_S = 1_780_000_000
SAMPLES: dict[str, Callable[[Path], Path]] = {}


def sample(name: str) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    def keep(write: Callable[[Path], Path]) -> Callable[[Path], Path]:
        SAMPLES[name] = write
        return write

    return keep


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def lines(path: Path, records: list[Any]) -> Path:
    return write(path, "".join(f"{json.dumps(record)}\n" for record in records))


@sample("vllm-command")
def vllm_command(folder: Path) -> Path:
    return write(
        folder / "serve.sh",
        f"export HF_TOKEN={SECRET}\n"
        "# vllm serve an/other --block-size 8\n"
        f"CUDA_VISIBLE_DEVICES=0 vllm serve facebook/opt-125m --api-key {SECRET} \\\n"
        "  --max-num-seqs=64 --num-gpu-blocks-override 4000 --no-enable-prefix-caching\n",
    )


@sample("vllm-config")
def vllm_config(folder: Path) -> Path:
    return write(
        folder / "config.yaml",
        f"# of `vllm serve --config`\nmodel: facebook/opt-125m\napi-key: {SECRET}\n"
        "max-num-seqs: 64  # as the others\nnum-gpu-blocks-override: 4000\n"
        "enable-prefix-caching: false\n",
    )


@sample("sglang-command")
def sglang_command(folder: Path) -> Path:
    return write(
        folder / "serve.sh",
        f"export HF_TOKEN={SECRET}\n"
        f"python3 -m sglang.launch_server --model-path facebook/opt-125m --api-key {SECRET} \\\n"
        "  --page-size 16 --tp 1 --chunked-prefill-size=512 --disable-radix-cache\n",
    )


@sample("trtllm-command")
def trtllm_command(folder: Path) -> Path:
    return write(
        folder / "serve.sh",
        f"HF_TOKEN={SECRET} trtllm-serve facebook/opt-125m --max_batch_size 64 \\\n"
        "  --max_num_tokens 2048 --max_seq_len 1024\n",
    )


@sample("trtllm-config")
def trtllm_config(folder: Path) -> Path:
    return write(
        folder / "extra.yaml",
        f"# of `trtllm-serve --extra_llm_api_options`\nhf_token: {SECRET}\nmax_batch_size: 64\n"
        "max_num_tokens: 2048\nkv_cache_config:\n  free_gpu_memory_fraction: 0.8  # as it is\n"
        "  enable_block_reuse: false\n  dtype: fp8\ncuda_graph_config:\n  enable_padding: true\n",
    )


@sample("llama-command")
def llama_command(folder: Path) -> Path:
    return write(
        folder / "serve.sh",
        f"export HF_TOKEN={SECRET}\n"
        f"./bin/llama-server -m /models/opt-125m-Q4_K_M.gguf --api-key {SECRET} --jinja \\\n"
        "  -c 4096 -np 2 -ctk q8_0 -ctv q8_0 -fa on --no-cache-idle-slots --cache-ram=512\n",
    )


@sample("ollama")
def ollama(folder: Path) -> Path:
    return write(
        folder / "ollama.service",
        f'[Service]\nEnvironment="OLLAMA_NUM_PARALLEL=2"\nEnvironment="HF_TOKEN={SECRET}"\n'
        'Environment="OLLAMA_KV_CACHE_TYPE=q8_0"\nExecStart=/usr/bin/ollama serve\n',
    )


@sample("llama-log")
def llama_log(folder: Path) -> Path:
    begun, timed = "0.33.442.579 I slot update_slots: id  1", "slot print_timing: id  1 | task"
    return write(
        folder / "llama.log",
        "0.00.100.000 I build: 7000 (0c1e57098) with cc\n"
        "0.00.100.100 I llama_model_loader: loaded meta data with 20 key-value pairs and 272 "
        "tensors from /models/opt-125m-Q4_K_M.gguf (version GGUF V3 (latest))\n"
        "0.00.200.000 I llama_context: n_seq_max     = 2\n"
        "0.00.200.000 I llama_context: n_ctx         = 4096\n"
        "0.00.200.000 I llama_context: kv_unified    = false\n"
        "0.00.200.050 I llama_kv_cache: size =  144.00 MiB (  2048 cells,  12 layers,  2/2 seqs), "
        "K (f16):   72.00 MiB, V (f16):   72.00 MiB\n"
        "0.00.200.100 I srv    load_model: prompt cache is enabled, size limit: 8192 MiB\n"
        f"{begun} | task 42 | new prompt, n_ctx_slot = 2048, n_keep = 0, task.n_tokens = 1200\n"
        f"0.34.942.579 I {timed} 42 | \n"
        "prompt eval time =     800.00 ms /   700 tokens (    1.54 ms per token)\n"
        "       eval time =     600.00 ms /    20 tokens (   30.00 ms per token)\n"
        f"0.40.000.000 I slot   operator(): id  0 | task 43 | new prompt, n_ctx_slot = 2048, "
        "n_keep = 0, task.n_tokens = 300\n"
        f"0.41.000.000 I {timed} 43 | prompt eval time =     200.00 ms /   300 tokens (0.6 ms)\n"
        f"0.41.500.000 I {timed} 43 |        eval time =     500.00 ms /    25 tokens (20.0 ms)\n"
        "0.50.000.000 I slot   operator(): id  0 | task 50 | new prompt, n_ctx_slot = 2048, "
        "n_keep = 0, task.n_tokens = 99\n",
    )


@sample("llama-answer")
def llama_answer(folder: Path) -> Path:
    return write(
        folder / "props.json",
        json.dumps(
            {
                "default_generation_settings": {"id": 0, "n_ctx": 2048},
                "total_slots": 2,
                "model_path": "/models/opt-125m-Q4_K_M.gguf",
                "build_info": "b7000-0c1e57098",
                "chat_template": PROMPT,
                "api_key": SECRET,
            }
        ),
    )


@sample("llama-metrics")
def llama_metrics(folder: Path) -> Path:
    return write(
        folder / "metrics.txt",
        "# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.\n"
        "# TYPE llamacpp:prompt_tokens_total counter\n"
        "llamacpp:prompt_tokens_total 1000\n"
        "# TYPE llamacpp:tokens_predicted_total counter\n"
        "llamacpp:tokens_predicted_total 45\n"
        "# TYPE llamacpp:prompt_tokens_seconds gauge\n"
        "llamacpp:prompt_tokens_seconds nan\n",
    )


@sample("vllm-log")
def vllm_log(folder: Path) -> Path:
    gauges = (
        "Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 20.0 "
        "tokens/s, Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.5%, Prefix cache hit "
        "rate: 0.0%"
    )
    return write(
        folder / "server.log",
        "(APIServer pid=1) INFO 06-10 20:35:00 [utils.py:344]   version 0.22.1\n"
        "(APIServer pid=1) INFO 06-10 20:35:00 [utils.py:278] non-default args: {'model_tag': "
        f"'facebook/opt-125m', 'api_key': ['{SECRET}'], 'max_num_seqs': 64, "
        "'enable_prefix_caching': False, 'num_gpu_blocks_override': 4000}\n"
        "(EngineCore pid=2) INFO 06-10 20:36:00 [core.py:1] Initializing a V1 LLM engine (v0.22.1) "
        "with config: model='facebook/opt-125m', dtype=torch.float16, max_seq_len=2048, "
        "tensor_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto, "
        "observability_config=ObservabilityConfig(max_model_len=1), enable_prefix_caching=False\n"
        "(Worker pid=3) INFO 06-10 20:36:30 [worker.py:1] Available KV cache memory: 60.00 GiB\n"
        "(EngineCore pid=2) INFO 06-10 20:36:31 [kv.py:1] Overriding num_gpu_blocks=109226 with "
        "num_gpu_blocks_override=4000\n"
        "(EngineCore pid=2) INFO 06-10 20:36:31 [kv.py:2] GPU KV cache size: 64,000 tokens\n"
        "(EngineCore pid=2) INFO 06-10 20:36:31 [kv.py:3] Maximum concurrency for 2,048 tokens per "
        "request: 31.25x\n"
        f"(APIServer pid=1) INFO 06-10 20:37:00 [loggers.py:1] {gauges}\n"
        f"(APIServer pid=1) INFO 06-10 20:37:10 [loggers.py:1] {gauges}\n",
    )


@sample("vllm-metrics")
def vllm_metrics(folder: Path) -> Path:
    return write(
        folder / "metrics.txt",
        "# HELP vllm:num_requests_running Number of requests.\n"
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{engine="0",model_name="facebook/opt-125m"} 2.0\n'
        'vllm:num_preemptions_total{engine="0",model_name="facebook/opt-125m"} 3.0\n'
        'vllm:e2e_request_latency_seconds_sum{engine="0",model_name="facebook/opt-125m"} 4.0\n'
        'vllm:e2e_request_latency_seconds_count{engine="0",model_name="facebook/opt-125m"} 8.0\n'
        'vllm:e2e_request_latency_seconds_bucket{le="+Inf",model_name="facebook/opt-125m"} 8.0\n'
        'vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="False",'
        'gpu_memory_utilization="0.9",kv_cache_max_concurrency="31.25",'
        'kv_cache_size_tokens="64000",num_gpu_blocks="4000",num_gpu_blocks_override="4000"} 1.0\n',
    )


@sample("sglang-metrics")
def sglang_metrics(folder: Path) -> Path:
    common = 'engine_type="unified",model_name="Qwen/Qwen3-0.6B",pp_rank="0",tp_rank="%s"'
    scheduler = "".join(
        f"sglang:{name}{{{common % rank}{more}}} {value}\n"
        for rank in (0, 1)
        for name, more, value in (
            ("max_total_num_tokens", "", 64000.0),
            ("hicache_host_total_tokens", "", 192000.0),
            ("evicted_tokens_total", "", 900.0),
            ("load_back_tokens_total", "", 700.0),
            ("load_back_duration_seconds_sum", "", 0.25),
            ("cache_config_info", ',page_size="64",num_pages="1000"', 1.0),
        )
    )
    return write(
        folder / "metrics.txt",
        "# HELP sglang:prompt_tokens_total Number of prefill tokens processed.\n"
        "# TYPE sglang:prompt_tokens_total counter\n"
        'sglang:prompt_tokens_total{model_name="Qwen/Qwen3-0.6B"} 5000.0\n'
        'sglang:cached_tokens_total{cache_source="device",model_name="Qwen/Qwen3-0.6B"} 400.0\n'
        'sglang:cached_tokens_total{cache_source="host",model_name="Qwen/Qwen3-0.6B"} 700.0\n'
        'sglang:time_to_first_token_seconds_sum{model_name="Qwen/Qwen3-0.6B"} 4.0\n'
        'sglang:time_to_first_token_seconds_count{model_name="Qwen/Qwen3-0.6B"} 8.0\n' + scheduler,
    )


@sample("vllm-bench")
def vllm_bench(folder: Path) -> Path:
    return write(folder / "bench.json", json.dumps(bench_result()))


@sample("model-config")
def model_config(folder: Path) -> Path:
    return write(folder / "config.json", json.dumps(MODEL_CONFIG))


MODEL_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


@sample("bench-text")
def bench_text(folder: Path) -> Path:
    return write(
        folder / "printed.txt",
        "============ Serving Benchmark Result ============\n"
        "Successful requests:                     2         \n"
        "Max request concurrency:                 not set   \n"
        "Traffic request rate:                    4.0       \n"
        "Benchmark duration (s):                  1.50      \n"
        "Total input tokens:                      30        \n"
        "Total generated tokens:                  8         \n"
        "---------------Time to First Token----------------\n"
        "Mean TTFT (ms):                          100.00    \n"
        "-----Time per Output Token (excl. 1st token)------\n"
        "Median TPOT (ms):                        25.00     \n"
        "P99 E2E Latency (ms):                    500.00    \n"
        "==================================================\n",
    )


def bench_result() -> dict[str, Any]:
    return {
        "backend": "vllm",
        "model_id": "facebook/opt-125m",
        "num_prompts": 3,
        "request_rate": "inf",
        "max_concurrency": 2,
        "duration": 1.5,
        "completed": 2,
        "total_input_tokens": 30,
        "total_output_tokens": 7,
        "request_throughput": 2.0,
        "mean_ttft_ms": 100.0,
        "p99_e2el_ms": 500.0,
        "input_lens": [10, 20, 30],
        "output_lens": [3, 4, 0],
        "ttfts": [0.1, 0.2, 0.0],
        "itls": [[0.1, 0.1], [0.1, 0.1, 0.1], []],
        "start_times": [5.0, 5.25, 5.5],
        "generated_texts": [PROMPT, PROMPT, ""],
        "errors": ["", "", "timed out"],
    }


@sample("sglang-log")
def sglang_log(folder: Path) -> Path:
    return write(
        folder / "sglang.log",
        "[2026-06-10 20:35:00] server_args=ServerArgs(model_path='facebook/opt-125m', "
        f"api_key='{SECRET}', tp_size=1, page_size=1, kv_cache_dtype='auto', "
        "max_running_requests=None, disable_radix_cache=False)\n"
        "[2026-06-10 20:35:20] KV Cache is allocated. #tokens: 171008, K 5.22 GB, V 5.22 GB\n"
        "[2026-06-10 20:35:30] max_total_num_tokens=171008, chunked_prefill_size=8192, "
        "max_prefill_tokens=16384, max_running_requests=2048, context_len=2048, "
        "available_gpu_mem=8.27 GB\n",
    )


@sample("sglang-answer")
def sglang_answer(folder: Path) -> Path:
    answer = {
        "model_path": "Qwen/Qwen3-8B",
        "tp_size": 1,
        "page_size": 1,
        "max_total_num_tokens": 400_000,
        "version": "0.5.6",
        "api_key": "sk-never-read",
    }
    return write(folder / "server_info.json", json.dumps(answer))


@sample("trtllm-log")
def trtllm_log(folder: Path) -> Path:
    return write(
        folder / "trtllm.log",
        "[TensorRT-LLM][INFO] TRTGptModel maxNumTokens: 8192\n"
        "[TensorRT-LLM][INFO] Capacity Scheduler Policy: GUARANTEED_NO_EVICT\n"
        "[TensorRT-LLM][INFO] Number of tokens per block: 32.\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.56 GiB for max tokens in paged KV "
        "cache (8224).\n"
        "[TensorRT-LLM][INFO] Number of tokens per block: 64.\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 26.91 GiB for max tokens in paged KV "
        "cache (220480).\n"
        "[02/14/2025-09:38:53] [TRT-LLM] [I] max_seq_len=2048, max_num_requests=2048, "
        "max_num_tokens=8192, max_batch_size=64\n",
    )


@sample("aiperf")
def aiperf(folder: Path) -> Path:
    metadata = {
        "x_request_id": "a",
        "conversation_id": "c",
        "turn_index": 0,
        "request_start_ns": UNIX_S * 10**9,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    }
    metrics = {
        "input_sequence_length": {"value": 10, "unit": "tokens"},
        "output_sequence_length": {"value": 4, "unit": "tokens"},
        "time_to_first_token": {"value": 100.5, "unit": "ms"},
        "request_latency": {"value": 400.25, "unit": "ms"},
    }
    failed = {"metadata": metadata | {"x_request_id": "b"}, "metrics": {}, "error": {"code": 500}}
    return lines(
        folder / "profile_export.jsonl",
        [{"metadata": metadata, "metrics": metrics, "error": None}, failed],
    )


@sample("llmperf")
def llmperf(folder: Path) -> Path:
    latencies = {
        f"results_{name}_{stat}": value
        for name, value in (("ttft_s", 0.1), ("end_to_end_latency_s", 0.5))
        for stat in ("quantiles_p50", "quantiles_p99", "mean", "stddev")
    }
    summary = {
        "version": "2023-08-31",
        "model": "facebook/opt-125m",
        "mean_input_tokens": 100,
        "num_concurrent_requests": 2,
        "results_num_completed_requests": 4,
        "results_number_input_tokens_mean": 90.0,
        "results_number_output_tokens_mean": 10.0,
        "additional_sampling_params": SECRET,
    }
    return write(folder / "summary.json", json.dumps(summary | latencies))


@sample("guidellm")
def guidellm(folder: Path) -> Path:
    timings = {
        "request_start": UNIX_S + 0.5,
        "first_token_iteration": UNIX_S + 0.75,
        "last_token_iteration": UNIX_S + 1.5,
        "request_end": UNIX_S + 1.625,
    }
    request = {
        "request_id": "g",
        "request_args": json.dumps({"prompt": PROMPT}),
        "output": PROMPT,
        "info": {"timings": timings, "status": "completed"},
        "prompt_tokens": 10,
        "output_tokens": 4,
    }
    benchmark = {
        "config": {"backend": {"model": "facebook/opt-125m", "api_key": SECRET}},
        "metrics": {},
        "requests": {"successful": [request], "errored": [{}], "incomplete": []},
    }
    return write(folder / "benchmarks.json", json.dumps({"benchmarks": [benchmark]}))


@sample("inference-perf")
def inference_perf(folder: Path) -> Path:
    info = {"input_tokens": 10, "output_tokens": 3, "output_token_times": [100.5, 100.75, 101.0]}
    row = {"start_time": 100.25, "end_time": 101.5, "request": PROMPT, "response": PROMPT}
    rows = [row | {"info": info, "error": None}, row | {"info": {}, "error": {"message": "x"}}]
    return write(folder / "per_request_lifecycle_metrics.json", json.dumps(rows))


@sample("blis-tracev2")
def blis_tracev2(folder: Path) -> Path:
    header = "trace_version: 3\ntime_unit: us\nmode: real\nserver:\n    type: vllm\n"
    write(folder / "trace.yaml", f"{header}    model: facebook/opt-125m\nnetwork: {{}}\n")
    path = folder / "trace.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        columns = "request_id session_id input_tokens output_tokens server_input_tokens "
        columns += "arrival_time_us send_time_us first_chunk_time_us last_chunk_time_us "
        writer.writerow(f"{columns}status error_message".split())
        us = UNIX_S * 10**6
        writer.writerow([0, "", 10, 4, 12, 0, us, us + 1000, us + 5000, "ok", ""])
        writer.writerow([1, "", 10, 4, 12, 9, us + 9, 0, 0, "timeout", "gave up"])
    return path


@sample("kv-events")
def kv_events(folder: Path) -> Path:
    batch, stored, removed, cleared = structs(maps=False)
    hashes = [b"\x01" * 32, 2**64 - 1]
    events = [stored(hashes, None, [1] * 32, 16, None, "GPU", None), removed(hashes[:1], "GPU")]
    payloads = [batch(1.0, events), batch(2.0, [cleared()]), batch(3.0, events[:1], 1)]
    path = folder / "events.bin"
    encoded = [msgspec.msgpack.encode(payload) for payload in payloads]
    path.write_bytes(b"".join(frame(number, each) for number, each in enumerate(encoded)))
    return path


@sample("dynamo-trace")
def dynamo_trace(folder: Path) -> Path:
    def record(name: str, received_ms: int, hashes: list[int]) -> dict[str, Any]:
        request = {
            "request_id": name,
            "model": "facebook/opt-125m",
            "input_tokens": 100,
            "output_tokens": 5,
            "cached_tokens": 64,
            "request_received_ms": received_ms,
            "ttft_ms": 50.0,
            "total_time_ms": 250.0,
            "replay": {"trace_block_size": 64, "input_length": 100,
                       "input_sequence_hashes": hashes},
        }  # fmt: skip
        kind = {"schema": "dynamo.request.trace.v1", "event_type": "request_end"}
        return {"timestamp": 1, "event": kind | {"request": request}}

    late = record("late", 1000 * UNIX_S + 500, [2**64 - 1, 7])
    return lines(folder / "trace.jsonl", [late, record("early", 1000 * UNIX_S, [2**64 - 1, 8])])


@sample("lmcache-lookup")
def lmcache_lookup(folder: Path) -> Path:
    def lookup(name: str, at: float, hashes: list[str]) -> dict[str, Any]:
        return {
            "timestamp": UNIX_S + at,
            "request_id": name,
            "model_name": "facebook/opt-125m",
            "chunk_size": 256,
            "seq_len": 600,
            "dtypes": ["float16"],
            "shapes": [[1]],
            "chunk_hashes": hashes,
        }

    return lines(
        folder / "lookup_hashes_20260610_203500_000000.jsonl",
        [lookup("cmpl-x-0", 0.0, ["0xaa", "0xbb"]), lookup("cmpl-y-0", 0.5, ["0xaa", "0xcc"])],
    )


@sample("otel-spans")
def otel_spans(folder: Path) -> Path:
    def attribute(key: str, kind: str, value: Any) -> dict[str, Any]:
        return {"key": key, "value": {kind: value}}

    attributes = [
        attribute("gen_ai.request.id", "stringValue", "cmpl-s"),
        attribute("gen_ai.usage.prompt_tokens", "intValue", "10"),
        attribute("gen_ai.usage.completion_tokens", "intValue", "4"),
        attribute("gen_ai.latency.time_to_first_token", "doubleValue", 0.25),
        attribute("gen_ai.latency.e2e", "doubleValue", 0.75),
        attribute("gen_ai.response.model", "stringValue", "facebook/opt-125m"),
        attribute("gen_ai.prompt", "stringValue", PROMPT),
    ]
    start_ns = UNIX_S * 10**9
    span = {
        "name": "llm_request",
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(start_ns + 750_000_000),
        "attributes": attributes,
    }
    other = {"name": "llm_core", "startTimeUnixNano": "1", "attributes": []}
    batch = {"resourceSpans": [{"scopeSpans": [{"spans": [other, span]}]}]}
    return lines(folder / "spans.jsonl", [batch])


@sample("trace")
def trace(folder: Path) -> Path:
    rows = [
        {"timestamp": 0, "input_length": 100, "output_length": 3, "hash_ids": [0, 1]},
        {"timestamp": 250, "input_length": 100, "output_length": 4, "hash_ids": [0, 2]},
    ]
    return lines(folder / "requests.jsonl", rows)


@sample("settings-json")
def settings_json(folder: Path) -> Path:
    settings = {
        "model": "facebook/opt-125m",
        "gpu": "H100",
        "vllm_version": "0.23.0",
        "num_gpu_blocks": 4000,
        "block_size": 16,
        "max_num_seqs": "256 by the plan",
        "api_key": SECRET,
    }
    return write(folder / "meta.json", json.dumps(settings))


@sample("requests-table")
def requests_table(folder: Path) -> Path:
    return write(
        folder / "requests.csv",
        "id,scheduled_s,send_s,prompt_tokens,output_tokens,first_token_s,last_token_s,failed\n"
        "a,0.0,0.25,10,4,0.75,1.5,0\nb,0.0,0.5,0,0,0,0,1\n",
    )


@sample("ticks-table")
def ticks_table(folder: Path) -> Path:
    return write(folder / "timeseries.csv", "t,running,waiting,kv_cache_pct\n1.0,2,1,12.5\n")
