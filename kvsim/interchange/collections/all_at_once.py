"""github.com/dennislee22/vLLM-benchmarking: `benchmark_serving` with all requests sent at once.

runs.csv: id, test (one server each), model, tp, gpu, its pool in GiB a GPU and in tokens,
num_prompts, lengths, totals and latencies. The settings stand in its README alone. engine_log.csv
is not read: its lines have no common clock with the client.
"""

from collections.abc import Iterator
from pathlib import Path

from kvsim.interchange.collections.collection import (
    Collection,
    Row,
    head_of,
    number,
    read_rows,
    request,
)
from kvsim.model import named_model
from kvsim.observed.trial import Trial
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.units import GIB

SETTINGS = {
    "vllm_version": "0.10.1.1",
    "max_model_len": 16384,
    "max_num_batched_tokens": 2048,
    "max_num_seqs": 256,
    "block_size": 16,
    "source": "github.com/dennislee22/vLLM-benchmarking",
}
_COLUMNS = {"test", "available_kv_gib", "kv_cache_tokens", "input_len", "total_output_tokens"}


class AllAtOnce(Collection):
    """See the head of this file."""

    @classmethod
    def claims(cls, folder: Path) -> bool:
        return head_of(folder / "runs.csv") >= _COLUMNS

    @classmethod
    def trials(cls, folder: Path) -> Iterator[Trial]:
        path = folder / "runs.csv"
        for row in read_rows(path):
            yield _trial(row, path)


def _trial(row: Row, path: Path) -> Trial:
    def cell(column: str) -> float:
        return number(row, column, f"{path}, {row['id']}")

    tp = round(cell("tp"))
    gpu, _, place = row["gpu"].partition(", ")
    meta = VllmMeta.parse(
        {
            **SETTINGS,
            "model": row["model"],
            "gpu": gpu,
            "tensor_parallel_size": tp,
            "num_gpu_blocks": _pool_tokens(row, tp, path) // 16,
        },
        f"{path}, {row['id']}",
    )
    count = round(cell("num_prompts"))
    prompt, output = cell("total_input_tokens") / count, cell("total_output_tokens") / count
    recorded = {"makespan_s": cell("duration_s")}
    for name in ("ttft", "tpot"):
        recorded[f"{name}_s"] = cell(f"{name}_mean_ms") / 1e3
    assumed = ["lengths: all as long as the mean", "no prompt of an earlier run is in the cache"]
    beyond = "" if place in ("", "one node") else f"{place}, and the network between them"
    return Trial(
        f"{row['id']} {row['model']} x{tp} on {row['gpu']}, {count} of {prompt:.0f}+{output:.0f}",
        meta,
        tuple(request(f"r{at}", 0.0, prompt, output) for at in range(count)),
        recorded,
        assumed=(*meta.assumptions, *assumed),
        beyond=beyond,
    )


def _pool_tokens(row: Row, tp: int, path: Path) -> int:
    """As logged; else what its GiB hold of the model's KV cache."""
    if row["kv_cache_tokens"]:
        return round(number(row, "kv_cache_tokens", path))
    layout = named_model(row["model"], f"{path}, {row['id']}").kv_layout(tensor_parallel_size=tp)
    return round(number(row, "available_kv_gib", path) * GIB) // layout.bytes_per_token
