"""A small folder of every kind of published collection."""

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path


def write_csv(path: Path, rows: list[dict[str, object]]) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as file:  # type: ignore[operator]
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def blis_training(folder: Path) -> None:
    answered = [
        {"id": at, "arrival_s": 2.0 * at, "prompt_tokens": 80, "output_tokens": 4 + at % 2,
         "ttft_s": 0.02, "e2e_s": 0.05, "failed": 0}
        for at in range(200)
    ]  # fmt: skip
    given_up = {"id": 200, "arrival_s": 30.5, "prompt_tokens": 0, "output_tokens": 0,
                "ttft_s": "", "e2e_s": "", "failed": 1}  # fmt: skip
    rows = sorted([*answered, given_up], key=lambda row: row["arrival_s"])
    write_csv(folder / "a.csv.gz", rows)
    run = {"file": "a.csv.gz", "model": "llama-3.1-8b", "gpu": "H100", "max_num_seqs": 8,
           "max_num_batched_tokens": 256, "max_model_len": 512, "num_gpu_blocks": 200,
           "ignore_eos": True, "data": {"shared_prefix": {
               "num_unique_system_prompts": 3, "system_prompt_len": 40, "output_len": 6,
           }}}  # fmt: skip
    (folder / "runs.json").write_text(json.dumps([run]))


def residency(folder: Path) -> None:
    write_csv(folder / "cell.csv.gz", [
        {"id": at, "scheduled_s": 0.1 * at, "send_s": 0.1 * at, "prompt_tokens": 50,
         "output_tokens": 5, "first_token_s": 0.1 * at + 0.02, "last_token_s": 0.1 * at + 0.08}
        for at in range(20)
    ])  # fmt: skip
    table = {"model": "qwen3-14b", "gpu": "H100-80GB", "vllm_version": "0.23.0",
             "max_num_seqs": "256 by a plan", "num_gpu_blocks": 500, "runs": [
                 {"file": "cell.csv.gz", "residency_token_seconds_total": 0.0}]}  # fmt: skip
    (folder / "runs.json").write_text(json.dumps(table))


def inferencex(folder: Path) -> None:
    write_csv(folder / "runs.csv", [
        {"label": f"cf_c2_b5_r{repeat}", "concurrency": 2, "num_prompts": 10,
         "mean_ttft_ms": 20 + repeat, "mean_tpot_ms": 10, "mean_e2e_ms": 100, "req_tput": 20,
         "kv_mean": 1.5, "running_mean": 2.0, "preemptions": 0}
        for repeat in (1, 2)
    ])  # fmt: skip
    lengths = {"input_lens": [60, 70, 80] * 4, "output_lens": [9, 8, 7] * 4}
    with gzip.open(folder / "gt_c2.json.gz", "wt") as file:
        json.dump(lengths, file)


def rate_stages(folder: Path) -> None:
    means = {"prompt_tokens_mean": 60, "output_tokens_mean": 5.0, "ttft_mean_s": 0.02,
             "e2e_mean_s": 0.06, "server_preemptions": 0, "requests": 30}  # fmt: skip
    write_csv(folder / "stages.csv", [
        {"variant": variant, "stage": 0, "requested_rate": 5.0, **means}
        for variant in ("vllm", "vllm+v0_engine")
    ])  # fmt: skip
    server = {"image": "vllm/vllm-openai:v0.11.0", "args": [
        "--max-num-seqs=16", "--max-model-len=512", "--no-enable-prefix-caching"]}  # fmt: skip
    (folder / "servers.json").write_text(json.dumps({"vllm": server}))


def all_at_once(folder: Path) -> None:
    row = {"id": "a1", "test": 1, "model": "Qwen2-7B-Instruct", "tp": 2,
           "gpu": "A100-80GB, two nodes", "available_kv_gib": 1.0, "kv_cache_tokens": "",
           "num_prompts": 12, "input_len": 64, "output_len": 8, "duration_s": 0.2,
           "total_input_tokens": 768, "total_output_tokens": 96, "ttft_mean_ms": 30,
           "tpot_mean_ms": 10}  # fmt: skip
    write_csv(folder / "runs.csv", [row])


def observed(folder: Path) -> None:
    (folder / "meta.json").write_text(json.dumps({"model": "llama-3.1-8b", "gpu": "H100"}))
    write_csv(folder / "requests.csv", [
        {"id": f"r{at}", "arrival_s": 0.1 * at, "prompt_tokens": 40, "output_tokens": 5,
         "first_token_s": 0.1 * at + 0.02, "last_token_s": 0.1 * at + 0.06}
        for at in range(9)
    ])  # fmt: skip


MAKERS: dict[str, Callable[[Path], None]] = {
    "blis-training": blis_training,
    "residency": residency,
    "inferencex": inferencex,
    "rate-stages": rate_stages,
    "all-at-once": all_at_once,
    "observed": observed,
}
