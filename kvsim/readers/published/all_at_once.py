"""github.com/dennislee22/vLLM-benchmarking: `benchmark_serving` with all requests sent at once.

runs.csv has id, test (one server each), model, tp, gpu, KV pool in GiB per GPU and in tokens,
num_prompts, lengths, totals and latencies. Only the README gives the settings. engine_log.csv is
not read, because its lines have no common clock with the client.
"""

from collections.abc import Iterator
from pathlib import Path

from kvsim.model import named_model
from kvsim.observed.trial import Trial
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.readers.published.tables import RunRow, head_of, read_rows, request
from kvsim.readers.reader import RecordedRuns, Sniffed

SETTINGS = {
    "vllm_version": "0.10.1.1",
    "max_model_len": 16384,
    "max_num_batched_tokens": 2048,
    "max_num_seqs": 256,
    "block_size": 16,
    "source": "github.com/dennislee22/vLLM-benchmarking",
}
# The start-up log of two GPUs in one node says "your platform lacks GPU P2P capability": NCCL then
# reduces through the host's memory. GB/s of that route on PCIe 4.0, measured on four L40S at two
# sockets (`nccl` of calibration/kernels/l40s-vllm.npz).
HOST_ROUTE_GB_PER_S = 3.7
_COLUMNS = {"test", "available_kv_gib", "kv_cache_tokens", "input_len", "total_output_tokens"}


class AllAtOnce(RecordedRuns):
    """Runs of `benchmark_serving` with all requests at once; see the module's docstring for the
    files.
    """

    what = "runs of `benchmark_serving`, all requests sent at once"

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        return head_of(source.path / "runs.csv") >= _COLUMNS

    @classmethod
    def runs(cls, folder: Path) -> Iterator[Trial]:
        path = folder / "runs.csv"
        for row in read_rows(path):
            name = row.text("id")
            yield _trial(name, row._replace(where=f"{path}, {name}"))


def _trial(name: str, row: RunRow) -> Trial:
    tp = round(row.number("tp", least=1.0))
    model, place = row.text("model"), row.text("gpu")
    gpu, _, beside = place.partition(", ")
    meta = VllmMeta.parse(
        {
            **SETTINGS,
            "model": model,
            "gpu": gpu,
            "tensor_parallel_size": tp,
            "peer_gb_per_s": HOST_ROUTE_GB_PER_S if tp > 1 else None,
            "num_gpu_blocks": _pool_tokens(row, model, tp) // 16,
        },
        row.where,
    )
    requests = row.count("num_prompts")
    prompt, output = (row.number(f"total_{each}_tokens") / requests for each in ("input", "output"))
    recorded = {"makespan_s": row.number("duration_s")}
    for latency in ("ttft", "tpot"):
        recorded[f"{latency}_s"] = row.number(f"{latency}_mean_ms") / 1e3
    assumed = ["lengths: all as long as the mean", "no prompt of an earlier run is in the cache"]
    if tp > 1:
        assumed.append(
            f"all-reduces at {HOST_ROUTE_GB_PER_S} GB/s, through the host: no peer-to-peer"
        )
    beyond = "" if beside in ("", "one node") else f"{beside}, and the network between them"
    return Trial(
        f"{name} {model} x{tp} on {place}, {requests} of {prompt:.0f}+{output:.0f}",
        meta,
        tuple(request(f"r{at}", 0.0, prompt, output) for at in range(requests)),
        recorded,
        assumed=(*meta.assumptions, *assumed),
        beyond=beyond,
    )


def _pool_tokens(row: RunRow, model: str, tp: int) -> int:
    """KV pool size in tokens: as logged, else the tokens that fit into its GiB for this model."""
    if "kv_cache_tokens" in row.cells:
        return round(row.number("kv_cache_tokens"))
    layout = named_model(model, row.where).kv_layout(tensor_parallel_size=tp)
    if not layout.bytes_per_token:
        raise InputError(
            "no kv_cache_tokens, and the model's tokens take no bytes", where=row.where
        )
    return round(row.number("available_kv_gib") * GIB) // layout.bytes_per_token
