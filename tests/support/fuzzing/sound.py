"""Sound contents of what kvsim reads: what the campaign damages."""

import json
from typing import Any

TRACES = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n2024-05-10 00:00:00.009930+00:00,2162,5\n",
    "burstgpt": "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,"
    "Total tokens,Log Type\n5,a,1,ChatGPT,472,18,490,Conversation log\n"
    '45,,2,"GPT-4",1087,230,1317,API log\n',
    "splitwise": "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,"
    "token_size\n0,2,0,0.004,1,1155,28\n1,2,0,0.5,1,64,9\n",
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,31,7\n0.75,200,31\n",
    "mooncake": '{"timestamp": 0, "input_length": 1100, "output_length": 52, "hash_ids": [0, 1, 2]}'
    '\n{"timestamp": 3000, "input_length": 600, "output_length": 9, "hash_ids": [0, 3]}\n',
    "timed-trace": '{"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3]}'
    '\n{"timestamp": 10.5, "input_length": 33, "output_length": 1, "hash_ids": [1, 2, 9]}\n',
    "aiperf": '{"session_id": "a", "timestamp": 7, "input_length": 600, "output_length": 3, '
    '"hash_ids": [1, 2]}\n{"session_id": "a", "delay": 5, "input_length": 70, "output_length": 1}\n'
    '{"session_id": 5, "timestamp": 9.25, "input_length": 8, "output_length": 2}\n',
    "qwen-bailian": '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 20, '
    '"output_length": 4, "type": "text", "turn": 1, "hash_ids": [1, 2]}\n{"chat_id": 2, '
    '"parent_chat_id": 1, "timestamp": 60.5, "input_length": 40, "output_length": 4, "type": '
    '"text", "turn": 2, "hash_ids": [1, 2, 3]}\n',
    "agent-sessions": '{"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": '
    '[{"t": 0.5, "in": 200, "out": 30, "hash_ids": [1, 2, 3], "api_time": 1.5}, {"t": 4, "type": '
    '"sub", "requests": [{"t": 5, "in": 64, "out": 2, "hash_ids": [9]}]}, {"t": 9, "in": 300, '
    '"out": 5, "think_time": 0.5, "hash_ids": [1, 2, 3, 4]}]}\n'
    '{"id": "u", "requests": [{"t": 3, "in": 65, "out": 3}]}\n',
}
SAMPLES_CSV = (
    b"kind,prefill_tokens,prefill_prior_tokens,decode_seqs,decode_context_tokens,"
    b"decode_context_max,seconds,source\ndecode,0,0,4,400,130,0.02,log\n"
    b"prefill,512,64,0,0,0,0.05,log\nmixed,256,0,2,20,12,0.03,\n"
)
SAMPLES_JSONL = (
    b'{"chunks": [[100, 0], [50, 16]], "decode_seqs": 1, "decode_context_tokens": 9, "seconds": '
    b'0.01, "repeats": 20, "seconds_min": 0.009}\n{"decode_seqs": 3, "decode_context_tokens": 90, '
    b'"decode_context_max": 40, "seconds": 0.011, "kind": "decode"}\n'
)
CASE = {
    "name": "small", "engine": {
        "num_gpu_blocks": 12, "block_size": 4, "max_num_seqs": 3, "max_num_batched_tokens": 16,
        "max_model_len": 64, "chunked_prefill": True, "prefix_caching": True, "watermark": 0.0,
        "policy": "fcfs", "async_scheduling": False, "long_prefill_token_threshold": 0,
        "kv_groups": [{"kind": "full", "groups": 1},
                      {"kind": "sliding", "groups": 1, "window_tokens": 8}]},
    "cost": {"a": 5, "b": 1, "c": 2},
    "requests": [
        {"id": "r0", "arrival": 0, "prompt": [["sys", 8], ["a", 5]], "out": 6},
        {"id": "r1", "arrival_step": 2, "prompt": [["sys", 8], ["b", 3]], "out": 9, "priority": 1},
        {"id": "r2", "arrival": 30, "prompt_len": 20, "out": 4, "n": 2, "out_name": "x"},
        {"id": "r3", "arrival": 31, "prompt_ids": [1, 2, 3, 4, 5], "out": 4}],
}  # fmt: skip
ROWS: dict[str, Any] = {"steps": [{"step": 0, "t0": 0, "t1": 5, "prefill": 13, "sched": []}]}
DRAFTED = ("76_states_uncached_drafts", "72_all_sliding_drafts")
OF_SGLANG = ("R06_declared_among_stoppers", "S11_edges", "S05_chunked_long")
SCENARIO = b"""seed = 3
max_steps = 100
[model]
name = "opt-125m"
max_model_len = 1024
tensor_parallel_size = 1
kv_cache_dtype = "auto"
[device]
name = "a100-40gb"
memory_gib = 40.0
[memory]
kv_cache_tokens = 4096
[[allocator]]
kind = "paged"
block_size = 16
watermark = 0.01
[[allocator]]
kind = "doubling"
initial_tokens = 64
factor = 2.0
placement = { kind = "best-fit" }
[scheduler]
kind = "continuous"
max_num_seqs = 16
max_num_batched_tokens = 512
swap_latency_us = 1.0
preemption_mode = "swap"
[step_time]
kind = "linear"
base_us = 8000.0
prefill_token_us = 40.0
decode_seq_us = 60.0
[workload]
kind = "synthetic"
num_requests = 12
clip_to = 512
n = 1
correlation = 0.5
max_tokens = { kind = "factor", factor = 2.0 }
priorities = [{ priority = 1, share = 0.5 }, { priority = 0, share = 0.5 }]
prefixes = [{ tokens = { kind = "fixed", tokens = 32 }, count = 2, share = 1.0 }]
arrivals = { kind = "gamma", rate_per_s = 2.0, cv = 1.5 }
prompt = { kind = "lognormal", components = [{ mu = 4.0, sigma = 1.0 }], max_tokens = 400 }
output = { kind = "geometric", mean = 30.0 }
"""
SESSIONS = b"""[model]
name = "opt-125m"
[device]
name = "own"
memory_gib = 8.0
bandwidth_gb_per_s = 500.0
fp16_tflops = 50.0
[memory]
gpu_memory_utilization = 0.9
activation_gib = 0.5
[[allocator]]
kind = "max-buffer"
reserve = "pow2"
[scheduler]
kind = "orca"
max_num_seqs = 8
[step_time]
kind = "roofline"
[workload]
kind = "sessions"
num_sessions = 5
max_context = "max_model_len"
arrivals = { kind = "closed-loop", num_users = 2, think = { kind = "exponential", mean_s = 1.0 } }
turns = { kind = "continuation", probabilities = [0.5, 0.25], max_turns = 5 }
prompt = { kind = "uniform", min_tokens = 5, max_tokens = 50 }
output = { kind = "grid", quantiles = [1.0, 20.0, 60.0] }
think = { kind = "lognormal", components = [{ mu = 0.0, sigma = 1.0 }] }
"""
VLLM_META = {
    "model": "llama-3.1-8b", "gpu": "rtx-4090", "vllm_version": "0.10.2", "max_model_len": 4096,
    "block_size": 16, "max_num_seqs": 64, "max_num_batched_tokens": 2048, "num_gpu_blocks": 2000,
    "enable_prefix_caching": True, "async_scheduling": False, "watermark": 0.0,
    "tick_seconds": 1.0, "clock_ahead_s": 0.25,
}  # fmt: skip
JOURNAL = (
    b'{"key": "a", "rows": [{"x": 1.5}], "error": null, "wrong_input": false, "wall_s": 1.0}\n'
    b'{"key": "b", "rows": [], "error": "no", "wrong_input": true, "wall_s": 0.5}\n'
)
STEPS = b'{"chunks": [[64, 0], [5, 32]], "contexts": [9, 100]}\n{"contexts": [1, 7]}\n'
SETUP = {"device": "cpu", "shape": [1, 2]}
LOG = (
    json.dumps({"setup": SETUP}).encode() + b'\n{"ceilings": {"flops": 1.5}}\n{"sentinel": '
    b'{"seconds": 0.5, "min_s": 0.4, "p90_s": 0.6, "n": 3}}\n{"dropped": {"contexts": [5]}, '
    b'"why": "no memory"}\n{"timing": {"seconds": 0.5, "min_s": 0.4, "p90_s": 0.6, "n": 3}, '
    b'"round": 0, "plan": {"chunks": [], "contexts": [4, 4], "source": "grid"}}\n'
)
SESSION = b'{"prove": {"status": "done", "seconds": 3.5}, "measure": {"status": "skipped"}}'
