"""github.com/GloriaXimingLu/inferencex-profiling: gpt-oss-120b on an H200, closed loops.

runs.csv has one row per run: label, concurrency, num_prompts, means measured by the client, and
figures of /metrics (kv_mean, running_mean, preemptions). gt_cN.json.gz has results of `vllm bench
serve` with lengths. Only the README gives the settings. Labels that end with _rK are repetitions,
and are averaged.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from kvsim.observed.trial import Trial
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.errors import InputError
from kvsim.readers.parsing.fields import Fields
from kvsim.readers.published.tables import MOST, RunRow, head_of, read_json, read_rows, request
from kvsim.readers.reader import RecordedRuns, Sniffed
from kvsim.readers.vllm.bench_rows import bench_rows

SETTINGS = {
    "model": "openai/gpt-oss-120b",
    "gpu": "H200",
    "vllm_version": "0.22.0",
    "max_num_seqs": 256,
    "max_model_len": 10240,
    "max_num_batched_tokens": 8192,
    "block_size": 16,
    "num_gpu_blocks": 103_690,
    "enable_prefix_caching": False,
    "source": "github.com/GloriaXimingLu/inferencex-profiling",
}
_LATENCIES = {"ttft_s": "mean_ttft_ms", "tpot_s": "mean_tpot_ms", "e2e_s": "mean_e2e_ms"}


class InferenceX(RecordedRuns):
    """Closed-loop runs of gpt-oss-120b on an H200; see the module's docstring for the files."""

    what = "closed loops of github.com/GloriaXimingLu/inferencex-profiling"

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        return {"label", "concurrency", "kv_mean", "preemptions"} <= head_of(
            source.path / "runs.csv"
        )

    @classmethod
    def runs(cls, folder: Path) -> Iterator[Trial]:
        path = folder / "runs.csv"
        repeats: dict[str, list[RunRow]] = {}
        for row in read_rows(path):
            repeats.setdefault(re.sub(r"_r\d+$", "", row.text("label")), []).append(row)
        lengths = _lengths(folder)
        meta = VllmMeta.parse(SETTINGS, str(path))
        for label, rows in repeats.items():
            yield _trial(label, rows, lengths, meta)


def _lengths(folder: Path) -> list[tuple[int, int]]:
    """(prompt, output) lengths from the longest of the runs that recorded lengths."""
    longest: list[tuple[int, int]] = []
    for path in sorted(folder.glob("gt_c*.json.gz")):
        rows = bench_rows(Fields(read_json(path), str(path)))
        pairs = [(row.prompt_tokens or 0, row.output_tokens) for row in rows]
        known = [(prompt, output) for prompt, output in pairs if output is not None]
        if not rows or len(known) < len(rows):
            raise InputError("no input_lens and output_lens", where=str(path))
        if max(map(max, known)) > MOST:
            raise InputError("input_lens and output_lens are no tokens", where=str(path))
        longest = max(longest, known, key=len)
    if not longest:
        raise InputError("no gt_cN.json.gz tells lengths", where=str(folder))
    return longest


def _trial(label: str, rows: list[RunRow], lengths: list[tuple[int, int]], meta: VllmMeta) -> Trial:
    def mean(column: str, least: float = 0.0) -> float:
        return sum(row.number(column, least) for row in rows) / len(rows)

    requests = round(sum(row.count("num_prompts") for row in rows) / len(rows))
    pairs = [lengths[at % len(lengths)] for at in range(requests)]
    recorded = {name: mean(column) / 1e3 for name, column in _LATENCIES.items()}
    recorded |= {
        "kv_cache_usage": mean("kv_mean") / 100,
        "running": mean("running_mean"),
        "preemptions": mean("preemptions"),
        "makespan_s": requests / mean("req_tput", 1e-6),
    }
    return Trial(
        label,
        meta,
        tuple(request(f"r{at}", 0.0, *pair) for at, pair in enumerate(pairs)),
        recorded,
        max_in_flight=round(mean("concurrency", 1.0)),
        assumed=(*meta.assumptions, "lengths: those of the longest run that tells them"),
    )
