"""A row as a scenario: its model, GPUs, engine and version, and its clients in a closed loop.

Several data-parallel attention copies are a fleet with the engine's own load balancer; copies of a
mixture of experts run in lockstep.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from evidence.points.apart import KEPT_FLAGS, both, side_rows
from evidence.points.labels import Split, split_of
from evidence.points.rows import Point
from evidence.points.servers import Benchmark, benchmark_of, flags_of
from kvsim.device import named_device
from kvsim.model.find import find_model
from kvsim.plumbing.errors import InputError
from kvsim.step_time.front_end import front_end
from kvsim.vllm.versions import vllm_version

# Weights by the labels, as the name of a copy of the model says them.
STORED = {"fp8": "-FP8", "fp4": "-NVFP4", "int4": "-INT4", "bf16": ""}
MORE_TOKENS = 200  # of max_model_len, over prompt and output: what scripts leave for a template
MOST_SEQS = 1024
SEMANTICS = (("0.27", "vllm-0.27"), ("0.13", "vllm-0.22"), ("0", "vllm-0.11"))
# Rows of a nightly build, and rows of no version: the releases of when InferenceX measured them.
UNNAMED = {"vllm": ("0.19.0", "0.11.0"), "sglang": ("0.5.8", "0.5.5")}
ASYNC_SINCE = (0, 14)
RACKS = {"gb300": {"gpus_per_node": 72}}  # its GPUs are those of servers of 8 otherwise
MS_PER_S = 1000.0


class Prepared(NamedTuple):
    """A row's scenario. table: its tables as nested dicts. front_end_ms: mean TTFT spent in the
    front end, outside the scenario.
    """

    table: dict[str, Any]
    split: Split
    benchmark: Benchmark
    front_end_ms: float


def prepare(row: Point, step_time: str | None = None) -> Prepared:
    """The scenario of a row; InputError gives the reason if there is none. step_time: kind of step
    time; None for a scenario's default.
    """
    if row.mode != "disagg":
        return _prepare(row, step_time)
    rows = side_rows(row)
    prefill, decode = (_prepare(each, step_time, KEPT_FLAGS) for each in rows[:2])
    return decode._replace(table=both(rows, prefill.table, decode.table))


def _prepare(row: Point, step_time: str | None, kept: Sequence[str] | None = None) -> Prepared:
    """The scenario of a row with one kind of server. kept: names of the script's flags to apply;
    None for all.
    """
    engine = ENGINES.get(row.backend)
    if engine is None:
        raise InputError("no engine of this name is simulated for points", where="backend",
                         value=row.backend, limit=", ".join(ENGINES))  # fmt: skip
    if row.mode != "agg":
        raise InputError("no deployment of this mode is simulated for points",
                         where="mode", value=row.mode, limit="agg, disagg")  # fmt: skip
    if row.pp_size > 1:
        raise InputError("pipeline stages are not simulated for points", where="pp_size",
                         value=row.pp_size, limit="1")  # fmt: skip
    split, benchmark = split_of(row), benchmark_of(row)
    flags = flags_of(row, split, row.clients(split.copies))
    if kept is not None:
        flags = {name: value for name, value in flags.items() if name in kept}
    clients = row.clients(split.copies)
    name = _model_name(row)
    model = find_model(name, "model_path", offline=True)
    mean = row.isl * (1 + benchmark.shortest) / 2
    front_ms = 0.0
    if benchmark.front_end:
        fitted = front_end(row.backend, model.kind)
        front_ms = 0.0 if fitted is None else fitted.ms(mean, clients)
    whole = split.whole_experts or flags.get("enable_expert_parallel", False)
    table: dict[str, Any] = {
        "model": {
            "name": name,
            "max_model_len": row.isl + row.osl + MORE_TOKENS,
            "tensor_parallel_size": split.tensor_parallel,
            "data_parallel_size": split.copies,
            "enable_expert_parallel": whole,
            "kv_cache_dtype": flags.get("kv_cache_dtype", "auto"),
        },
        "device": {"name": _device(row.system), **RACKS.get(row.system, {})},
        "step_time": _step_time(row, step_time),
        "workload": {
            "kind": "synthetic",
            "num_requests": clients * benchmark.requests_a_client,
            "arrivals": {
                "kind": "closed-loop",
                "num_users": clients,
                "think": {"kind": "fixed", "seconds": front_ms / MS_PER_S},
            },
            **_prompts(row, benchmark, flags.get("enable_prefix_caching", False)),
            "output": _lengths(row.osl, benchmark.shortest),
        },
        **engine(row, flags, clients),
    }
    if split.copies > 1:
        router = {"kind": f"{row.backend}-dp", "lockstep": model.is_sparse}
        table["fleet"] = {"replicas": split.copies, "router": router}
        if model.is_sparse and "async_scheduling" in table["scheduler"]:
            table["scheduler"]["async_scheduling"] = False  # copies in step have one step in flight
    return Prepared(table, split, benchmark, front_ms)


def _step_time(row: Point, kind: str | None) -> dict[str, Any]:
    if kind not in (None, "kernels"):
        return {"kind": kind}
    return {"kind": "kernels", "engine_version": version_of(row), "tuned": True}


def version_of(row: Point) -> str:
    """The engine's version; if the row gives none, the one that the benchmark ran then."""
    written = row.backend_version
    if written[:1].isdigit():
        return written
    nightly, plain = UNNAMED[row.backend]
    return nightly if written else plain


def _model_name(row: Point) -> str:
    """The model's name without its organisation, so that nothing is downloaded, and its
    quantization.
    """
    name = row.model_path.rpartition("/")[2]
    if name.lower().startswith("gpt-oss") or any(
        name.endswith(end) for end in STORED.values() if end
    ):
        return name
    if row.precision not in STORED and row.precision:
        raise InputError("weights of this precision are not known", where="precision",
                         value=row.precision, limit=", ".join(STORED))  # fmt: skip
    if (row.precision == "fp8" and name in OWN_FP8) or row.precision == "int4":
        return name
    return name + STORED.get(row.precision, "")


OWN_FP8 = ("DeepSeek-R1", "DeepSeek-V3", "MiniMax-M2.5")


def _device(system: str) -> str:
    name = system.removesuffix("_sxm").replace("_", "-")
    return named_device(name, "system").name


def _prompts(row: Point, benchmark: Benchmark, cached: bool) -> dict[str, Any]:
    """The [workload] prompts of a row. Prompts are private; if the benchmark repeats prompts and
    the server caches them, all but the last token come from a pool of prefixes.
    """
    if not (cached and benchmark.distinct_prompts):
        return {"prompt": _lengths(row.isl, benchmark.shortest)}
    pool = {"count": benchmark.distinct_prompts, "tokens": _lengths(row.isl - 1, 1.0)}
    return {"prompt": _lengths(1, 1.0), "prefixes": [pool]}


def _lengths(nominal: int, shortest: float) -> dict[str, Any]:
    if shortest == 1:
        return {"kind": "fixed", "tokens": nominal}
    return {"kind": "uniform", "min_tokens": max(1, int(shortest * nominal)), "max_tokens": nominal}


def _vllm(row: Point, flags: dict[str, Any], clients: int) -> dict[str, Any]:
    version = vllm_version(version_of(row))
    device = named_device(_device(row.system), "system")
    _, tokens = version.sizing.default_limits(device.memory_bytes, device.name)
    semantics = next(name for since, name in SEMANTICS if _at_least(version.since, since))
    memory: dict[str, Any] = {"engine_version": version.name}
    cached = flags.get("enable_prefix_caching", False)
    if "gpu_memory_utilization" in flags:
        memory["gpu_memory_utilization"] = flags["gpu_memory_utilization"]
    return {
        "allocator": [{"kind": "paged", "enable_prefix_caching": cached}],
        "memory": memory,
        "scheduler": {
            "kind": "continuous",
            "max_num_seqs": max(MOST_SEQS, clients),
            "max_num_batched_tokens": flags.get("max_num_batched_tokens", tokens),
            "async_scheduling": flags.get("async_scheduling", version.since >= ASYNC_SINCE),
            "semantics": semantics,
        },
    }


def _at_least(since: tuple[int, int], written: str) -> bool:
    return since >= tuple(int(part) for part in f"{written}.0".split(".")[:2])


def _sglang(row: Point, flags: dict[str, Any], clients: int) -> dict[str, Any]:
    named = (
        *("chunked_prefill_size", "max_prefill_tokens", "max_running_requests"),
        *("scheduler_recv_interval", "enable_mixed_chunk"),
    )
    del row
    # Where more clients were measured, another script with a larger limit served them.
    most = flags.get("max_running_requests", clients)
    flags = {**flags, "max_running_requests": max(most, clients)}
    return {
        "allocator": [{"kind": "radix", "disable_radix_cache": True}],
        "memory": {"mem_fraction_static": flags.get("mem_fraction_static", "auto")},
        "scheduler": {"kind": "sglang"} | {key: flags[key] for key in named if key in flags},
    }


ENGINES = {"vllm": _vllm, "sglang": _sglang}
