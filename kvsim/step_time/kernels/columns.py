"""The kinds of kernel that are tabulated, and which columns of a measurement say what.

The column names are those of the tables in NVIDIA's aisimulate wheel (0.13), which a user's own
measurements may share.
"""

from typing import NamedTuple


class MeasuredKernel(NamedTuple):
    """The files of one kind of kernel, and the meaning of their columns.

    kind: the kernel's name in the distilled tables. stem: name of the Parquet files without
    extension. dtype: columns with values that, joined by "/", give the arithmetic and the stored
    formats. shape: columns that stay as they are. x: the column along which a curve runs. only:
    values that a column must have. latency: the column of the time (or several, joined by "+");
    unit_us: of how many us. origin: added to x. parts: a column and a word; rows with the word in
    it are one half of a kernel's time, the others the other half. Where several kernels do the
    same, the quickest counts.
    """

    kind: str
    stem: str
    dtype: tuple[str, ...]
    shape: tuple[str, ...]
    x: str
    only: tuple[tuple[str, tuple[object, ...]], ...] = ()
    latency: str = "latency"
    unit_us: float = 1000.0
    origin: int = 0
    parts: tuple[str, str] | None = None


FORMATS = (".parquet", ".csv")  # of files of measurements
HEADS = ("num_heads", "num_key_value_heads", "head_dim", "window_size", "batch_size")
EXPERTS = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
DELTA = ("num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim", "batch_size")
GRAPH = ("vLLM_custom_graph", "SGLang_CustomAllReduce_graph")
WHOLE = ("dsa_context_module", "dsa_generation_module")
NCCL = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")

# Columns that older tables have not, and what all of their rows would say.
DEFAULTS: dict[str, int | str] = {"window_size": 0, "attn_dtype": "bfloat16", "node_num": 1}

MEASURED = (
    MeasuredKernel("gemm", "gemm_perf", ("gemm_dtype",), ("n", "k"), "m"),
    MeasuredKernel(
        "prefill_attention",
        "context_attention_perf",
        ("attn_dtype", "kv_cache_dtype"),
        HEADS,
        "isl",
        (("step", (0,)),),
    ),
    MeasuredKernel(
        "decode_attention",
        "generation_attention_perf",
        ("kv_cache_dtype",),
        HEADS,
        "step",
        origin=1,
    ),
    MeasuredKernel(
        "moe",
        "moe_perf",
        ("moe_dtype",),
        EXPERTS,
        "num_tokens",
        (("distribution", ("power_law_1.2", "power_law_1.01")),),
    ),
    MeasuredKernel(
        "mla_prefill",
        "context_mla_perf",
        ("mla_dtype", "kv_cache_dtype"),
        ("num_heads", "batch_size"),
        "isl",
    ),
    MeasuredKernel(
        "mla_decode",
        "generation_mla_perf",
        ("kv_cache_dtype",),
        ("num_heads", "batch_size"),
        "step",
        origin=1,
    ),
    MeasuredKernel(
        "mla_prefill_module",
        "mla_context_module_perf",
        ("gemm_type", "kv_cache_dtype"),
        ("num_heads", "batch_size"),
        "isl",
        (("step", (0,)),),
    ),
    MeasuredKernel(
        "mla_decode_module",
        "mla_generation_module_perf",
        ("gemm_type", "kv_cache_dtype"),
        ("num_heads", "batch_size"),
        "step",
    ),
    MeasuredKernel(
        "mla_absorb",
        "mla_bmm_perf",
        ("bmm_dtype",),
        ("num_heads",),
        "num_tokens",
        parts=("op_name", "pre"),
    ),
    MeasuredKernel(
        "dsa_prefill_module",
        "dsa_context_module_perf",
        ("architecture", "gemm_type", "kv_cache_dtype"),
        ("num_heads", "batch_size"),
        "isl",
        (("op_name", WHOLE), ("step", (0,))),
    ),
    MeasuredKernel(
        "dsa_decode_module",
        "dsa_generation_module_perf",
        ("architecture", "gemm_type", "kv_cache_dtype"),
        ("num_heads", "batch_size"),
        "step",
        (("op_name", WHOLE),),
    ),
    MeasuredKernel(
        "delta_prefill",
        "gdn_perf",
        (),
        DELTA,
        "seq_len",
        (("phase", ("context",)),),
        parts=("kernel_source", "conv1d"),
    ),
    MeasuredKernel(
        "delta_decode",
        "gdn_perf",
        (),
        DELTA[:-1],
        "batch_size",
        (("phase", ("generation",)),),
        parts=("kernel_source", "conv1d"),
    ),
    MeasuredKernel("quantize", "scale_matrix_perf", ("quant_dtype",), ("k",), "m"),
    MeasuredKernel(
        "all_reduce",
        "custom_allreduce_perf",
        (),
        ("num_gpus",),
        "message_size",
        (("kernel_source", GRAPH),),
    ),
    MeasuredKernel(
        "nccl",
        "nccl_perf",
        ("op_name",),
        ("num_gpus",),
        "message_size",
        (("op_name", NCCL), ("nccl_dtype", ("half",))),
    ),
    MeasuredKernel(
        "all_to_all",
        "wideep_deepep_ll_perf",
        (),
        ("node_num", "hidden_size", "num_topk", "num_experts"),
        "num_token",
        latency="combine_avg_t_us+dispatch_avg_t_us",
        unit_us=1.0,
    ),
)
