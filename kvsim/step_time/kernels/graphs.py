"""Batch sizes that engines capture CUDA graphs of: a decode step is padded to the next size.

Padding sequences are computed too, and read further experts. vLLM: `cudagraph_capture_sizes`
(vllm/config of 0.9 to 0.33). SGLang: `capture_bs` of model_executor/cuda_graph_runner.py.
Qwen3.6-35B-A3B on a GB10 (vLLM 0.25): 54 ms at 3 and 4, 80 to 83 at 5 to 7, 117 to 123 at 9 to 11.
"""

GRAPH_SIZES: dict[str, tuple[int, ...]] = {
    "vllm": (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)),
    "sglang": (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16)),
}
