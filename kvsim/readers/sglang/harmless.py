"""Patterns of SGLang log lines that contain nothing relevant to a scenario."""

import re

HARMLESS = tuple(
    re.compile(pattern)
    for pattern in (
        r"Init torch distributed (?:begin|ends)",
        r"Memory pool end\. avail mem",
        r"Capture (?:piecewise |target \w+ |draft \w+ )?(?:cuda|CUDA) graph (?:begin|end|bs)",
        r"Capturing (?:batches|num tokens)",
        r"Disable piecewise CUDA graph",
        r"Tree cache initialized",
        r"Using KV cache dtype",
        r"Use sliding window memory pool",
        r"Attention backend not (?:specified|set)",
        r"Loading safetensors|Multi-thread loading|Loading .{0,80}checkpoint shards",
        r"Prefill batch|Decode batch",  # steps: read as such, or of too few lines to be
        r"^(?:Started|Waiting|Application|Uvicorn|[\d.]+:\d+ - )",
        r"(?:GET|POST|HEAD) /\S* HTTP",
        r"The server is fired up",
        r"Server is ready|End of warmup|Start of (?:co)?-?warmup",
        r"Receive: |Finish: |Received request|Finished request",
        r"Warning|warnings?\.warn|FutureWarning|DeprecationWarning|UserWarning",
        r"Using default HuggingFace chat template|[Cc]hat template",
        r"Ignore import error|Failed to import|mistral_common",
        r"torch_dtype. is deprecated|`torch_dtype`",
        r"NCCL version|sglang is using nccl",
        r"TP rank|Gloo|\[Gloo\]|init_process_group",
        r"Custom allreduce|custom all-reduce|symmetric memory",
        r"Using model weights format",
        r"Load chat template|Detected chat template|reasoning parser|tool.call",
        r"HF_TOKEN|unauthenticated requests",
        r"freeze_gc|GC |Freezing",
        r"Health check|health_generate",
        r"Flush cache|Cache flushed|#queue-req: 0$",
    )
)
