"""github.com/kubernetes-sigs/inference-perf, demos: stages of rising request rates, with means
only.

stages.csv has variant, stage, requested_rate, requests, means of lengths and latencies, and the
server's figures. Its TPOT is only half the mean gap between tokens that E2E and TTFT imply. So TPOT
is computed from E2E and TTFT. servers.json has the server's image and arguments by variant.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.random import PCG64, Generator

from kvsim.observed.trial import Trial
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.errors import InputError
from kvsim.readers.published.tables import RunRow, head_of, read_json, read_rows, request
from kvsim.readers.reader import RecordedRuns, Sniffed

MODEL, GPU = "meta-llama/Meta-Llama-3-8B", "H100"
_FLAGS = {
    "--max-num-seqs": "max_num_seqs",
    "--max-model-len": "max_model_len",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--block-size": "block_size",
}


class RateStages(RecordedRuns):
    """Runs at rising request rates; see the module's docstring for the files."""

    what = "stages of inference-perf's demos"

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        columns = {"variant", "stage", "requested_rate", "prompt_tokens_mean"}
        return (
            columns <= head_of(source.path / "stages.csv")
            and (source.path / "servers.json").is_file()
        )

    @classmethod
    def runs(cls, folder: Path) -> Iterator[Trial]:
        servers = read_json(folder / "servers.json")
        path = folder / "stages.csv"
        for row in read_rows(path):
            variant = row.text("variant")
            if "v0_engine" not in variant:  # another engine, whose settings vLLM's V1 lacks
                yield _trial(row, variant, _meta(servers, variant, folder / "servers.json"))


def _meta(servers: Any, variant: str, path: Path) -> VllmMeta:
    try:
        args, image = list(servers[variant]["args"]), str(servers[variant]["image"])
    except (KeyError, TypeError):
        raise InputError("no such server", where=str(path), value=variant) from None
    table: dict[str, Any] = {
        "model": MODEL,
        "gpu": GPU,
        "vllm_version": image.rpartition(":")[2],
        "source": "github.com/kubernetes-sigs/inference-perf",
    }
    for arg in args:
        flag, _, value = str(arg).replace("_", "-").partition("=")
        if flag in _FLAGS:
            table[_FLAGS[flag]] = value
        switch = re.fullmatch(r"--(no-)?enable-(prefix-caching|chunked-prefill)", flag)
        if switch:
            table[f"enable_{switch[2].replace('-', '_')}"] = switch[1] is None
    return VllmMeta.parse(table, str(path))


def _trial(row: RunRow, variant: str, meta: VllmMeta) -> Trial:
    rate = row.number("requested_rate", 1e-3)
    gaps = Generator(PCG64(0)).exponential(1 / rate, size=row.count("requests"))
    arrivals = (gaps.cumsum() - gaps[0]).tolist()
    prompt, output = row.number("prompt_tokens_mean"), row.number("output_tokens_mean")
    recorded = {name: row.number(f"{name[:-2]}_mean_s") for name in ("ttft_s", "e2e_s")}
    if recorded["e2e_s"] < recorded["ttft_s"]:
        raise InputError("an answer ends before it begins", where=row.where, value=recorded)
    if output > 1:
        recorded["tpot_s"] = (recorded["e2e_s"] - recorded["ttft_s"]) / (output - 1)
    return Trial(
        f"{variant} at {rate:g}/s",
        meta,
        tuple(request(f"r{at}", when, prompt, output) for at, when in enumerate(arrivals)),
        recorded | {"preemptions": row.number("server_preemptions")},
        assumed=(*meta.assumptions, "arrivals: Poisson", "lengths: all as long as the mean"),
    )
