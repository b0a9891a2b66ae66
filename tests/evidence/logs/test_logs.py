"""`kvsim validate logs`: free-text rows, errors of pools, and the collected logs if available."""

import csv
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from evidence.logs.outcome import compare
from evidence.logs.row import COLUMNS, read_rows
from evidence.logs.settings import (
    RefusalError,
    read_device,
    read_notes,
    read_scheme,
    read_version,
)
from evidence.logs.summary import summarise
from kvsim.cli import app
from kvsim.plumbing.errors import InputError

LOGS = Path(os.environ.get("KVSIM_STARTUP_LOGS_DIR", "")) / "startup-logs.csv"
# Qwen3-14B on an H100 under 0.23, at its defaults: 18,038 blocks of 16 tokens.
ROW = {
    "id": "one",
    "engine_version": "0.23.0",
    "model": "Qwen/Qwen3-14B",
    "gpu": "H100-80GB",
    "max_num_batched_tokens": "8192",
    "num_gpu_blocks": "18038",
    "weights_gib": "27.52",
    "notes": "plan of its authors; max_num_seqs=256",
}


def table(path, *rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def outcome(tmp_path, **changes):
    (row,) = read_rows(table(tmp_path / "logs.csv", ROW | changes))
    return compare(row)


def test_tokens_from_the_logged_pool_bytes_equal_the_log(tmp_path):
    """Gemma-3-12B under 0.19: six KV cache groups of eight layers share the blocks."""
    changes = {"model": "google/gemma-3-12b-it", "engine_version": "0.19.0", "num_gpu_blocks": ""}
    changes |= {"available_kv_gib": "47.72", "kv_cache_tokens": "130304", "max_model_len": "8192"}
    changes |= {"kv_cache_dtype": "auto"}
    found = outcome(tmp_path, **changes)
    assert abs(found.tokens_error) < 1e-4
    assert (found.state, found.assumed) == ("sized", ("gpu_memory_utilization",))


SGLANG = {
    "engine_version": "SGLang of July 2025", "model": "Qwen/Qwen3-235B-A22B-FP8", "tp": "4",
    "gpu_memory_utilization": "0.93", "quantization": "fp8", "kv_cache_dtype": "auto",
    "available_kv_gib": "16.46", "kv_cache_tokens": "367404",
}  # fmt: skip
TENSORRT = {
    "engine_version": "TensorRT-LLM of 2023", "model": "meta-llama/Llama-2-7b-hf", "gpu": "A10",
    "gpu_memory_utilization": "0.95", "block_size": "16", "kv_cache_tokens": "10718",
    "max_num_batched_tokens": "25600", "notes": "max_num_seqs=25",
}  # fmt: skip
OPEN = dict.fromkeys(("num_gpu_blocks", "weights_gib", "max_num_batched_tokens", "notes"), "")


def test_sglang_log_rows_are_sized_by_sglangs_rules(tmp_path):
    """vllm#21348: 8.23 GB each of keys and values, 367,404 tokens."""
    found = outcome(tmp_path, **OPEN, **SGLANG)
    assert (found.state, found.reason, found.assumed) == ("sized", "", ())
    assert abs(found.tokens_error) < 1e-3
    assert found.error == pytest.approx(0.06, abs=0.01)
    default = outcome(tmp_path, **OPEN, **SGLANG | {"gpu_memory_utilization": ""})
    assert default.assumed == ("gpu_memory_utilization",)
    assert default.pool_gib != found.pool_gib


def test_log_row_with_flashinfer_sampler_sizes_a_different_pool(tmp_path):
    """vllm#21348's other log: 8.11 GiB and 178,880 tokens under 0.9.2 with LMCache, in an image
    without FlashInfer. If a row does not say, the sampler is listed as assumed.
    """
    vllm = {"engine_version": "0.9.2", "gpu_memory_utilization": "0.9", "num_gpu_blocks": ""}
    log = SGLANG | vllm | {"available_kv_gib": "8.11", "kv_cache_tokens": "178880"}
    image = outcome(tmp_path, **OPEN | log | {"notes": "flashinfer_sampler=true"})
    sorts = outcome(tmp_path, **OPEN | log)
    assert "flashinfer_sampler" in sorts.assumed
    assert "flashinfer_sampler" not in image.assumed
    assert image.error == pytest.approx(0.51, abs=0.01)
    assert abs(sorts.error) < 0.01


@pytest.mark.parametrize(
    ("changes", "within"),
    [
        (
            {
                "engine_version": "0.27.1", "model": "Qwen3.8-27B-FP8", "gpu": "RTX 3090",
                "gpu_memory_utilization": "0.92", "kv_cache_tokens": "270930",
            },
            0.06,  # outside torch GPUs without NVLink take 0.2 GiB more or less than taken here
        ),
        (
            {
                "engine_version": "0.25.1", "model": "Qwen3.8-27B-NVFP4", "gpu": "RTX 3090",
                "gpu_memory_utilization": "0.90", "kv_cache_tokens": "518430",
            },
            0.06,
        ),
        (
            {
                "engine_version": "0.27.1", "model": "nvidia/Qwen3.6-27B-NVFP4",
                "gpu": "RTX 5090", "gpu_memory_utilization": "0.85", "available_kv_gib": "14.68",
            },
            0.05,
        ),
    ],
    ids=["fp8", "nvfp4", "nvfp4, RTX 5090"],
)  # fmt: skip
def test_pools_of_hybrid_vision_models_with_drafts_are_within_bounds(tmp_path, changes, within):
    """TP 2, images, MTP drafts, and CUDA graphs counted in the memory profile. Source: comments of
    the files under models/qwen3.*-27b of github.com/noonghunna/club-3090.
    """
    shared = {
        "tp": "2", "kv_cache_dtype": "fp8", "max_model_len": "262144",
        "max_num_batched_tokens": "8192", "notes": "max_num_seqs=2; MTP 3",
        "num_gpu_blocks": "", "weights_gib": "",
    }  # fmt: skip
    found = outcome(tmp_path, **shared | changes)
    assert found.state == "sized", found.reason
    assert abs(found.error) < within


def test_tensorrt_log_rows_are_sized_by_tensorrts_rules(tmp_path):
    """TensorRT-LLM#224 gives only tokens. Its max_num_tokens is not given: 25 prompts of 1,024."""
    found = outcome(tmp_path, **OPEN | TENSORRT)
    assert (found.state, found.assumed) == ("sized", ())
    assert found.log_gib == 10_718 / 2048
    assert found.error == pytest.approx(0.19, abs=0.01)
    half = outcome(tmp_path, **OPEN | TENSORRT | {"gpu_memory_utilization": "0.475"})
    assert half.pool_gib == pytest.approx(found.pool_gib / 2, abs=0.01)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (SGLANG | {"model": "deepseek-ai/DeepSeek-V4-Flash"}, "not followed"),
        (TENSORRT | {"model": "nvidia/Nemotron-H-8B-Base-8K"}, "not followed"),
        (SGLANG | {"available_kv_gib": "", "kv_cache_tokens": ""}, "gives no pool"),
        (SGLANG | {"notes": "drafts with mtp 2"}, "drafter"),
        (TENSORRT | {"gpu": "not named"}, "does not name its GPU"),
    ],
    ids=str,
)
def test_log_rows_of_other_engines_are_refused_with_a_reason(tmp_path, changes, reason):
    found = outcome(tmp_path, **OPEN | changes)
    assert found.state == "refused", found.reason
    assert reason in found.reason


def test_log_row_pool_is_sized_from_its_settings(tmp_path):
    found = outcome(tmp_path)
    assert (found.state, found.reason) == ("sized", "")
    assert found.log_gib == pytest.approx(44.04, abs=0.005)
    assert abs(found.error) < 0.01
    assert found.weights_gib == pytest.approx(27.52, abs=0.05)


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        ({"engine_version": "fork of May 2026"}, "refused", "another engine"),
        ({"engine_version": "LMDeploy 0.9"}, "refused", "another engine"),
        ({"gpu": "not named"}, "refused", "does not name its GPU"),
        ({"gpu": "GB10 (unified memory)"}, "refused", "the host's too"),
        ({"model": "not named"}, "refused", "does not name its model"),
        ({"notes": "pool set by kv_cache_memory_bytes"}, "refused", "given, not sized"),
        ({"available_kv_gib": "-1.05"}, "refused", "did not start"),
        ({"num_gpu_blocks": ""}, "refused", "gives no pool"),
        ({"model": "MiniMaxAI/MiniMax-M1-80k"}, "refused", "architecture is not understood"),
        ({"model": "acme/Cool-1B"}, "unknown", "unknown model"),
        ({"gpu": "Abacus 9000"}, "unknown", "unknown device"),
        ({"quantization": "secret"}, "unknown", "unknown quantization"),
        ({"kv_cache_dtype": "secret"}, "unknown", "unknown KV cache dtype"),
        ({"gpu_memory_utilization": "-1"}, "unknown", "gpu_memory_utilization"),
        ({"notes": "max_cudagraph_capture_size=0"}, "unknown", "max_cudagraph_capture_size"),
        ({"tp": "1000"}, "unknown", "query heads cannot be split"),
        ({"block_size": "1000000000000"}, "unknown", "less than one block"),
    ],
)
def test_log_row_that_is_not_sized_has_a_reason(tmp_path, changes, state, reason):
    found = outcome(tmp_path, **changes)
    assert found.state == state
    assert reason in found.reason
    assert found.error is None


CELLS = st.one_of(
    st.sampled_from(
        (
            *("", "0", "-1", "1e9", "1e300", "nan", "0.5", "16", "1000000000000", "auto", "true"),
            *("fp8", "awq", "mxfp4", "nvfp4", "V0", "0.33.0", "fork", "MI300X", "GB200", "gpt2"),
            *("openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3.2", "deepseek-ai/DeepSeek-V4-Flash"),
            *("state-spaces/mamba-2.8b-hf", "MTP 3; ssm cache float32", "max_num_seqs=0"),
            *("dtype=fp3", "max_cudagraph_capture_size=0", "attention_block_size=0.5"),
        )
    ),
    st.text(max_size=12),
)


@settings(max_examples=150, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(COLUMNS), CELLS, min_size=1, max_size=4))
def test_any_log_row_has_an_outcome_or_a_one_line_error(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, str]
) -> None:
    path = table(tmp_path_factory.mktemp("logs") / "logs.csv", ROW | changes)
    rows = []
    with suppress(InputError):  # a cell that is no number
        rows = read_rows(path)
    for row in rows:
        found = compare(row)
        assert found.state in ("sized", "refused", "unknown")
        assert bool(found.reason) == (found.state != "sized")


@pytest.mark.parametrize("kept", [0, 1, 10, 100, 250, 400])
def test_a_table_that_ends_too_early_is_a_one_line_error(kept: int, tmp_path: Path) -> None:
    path = table(tmp_path / "logs.csv", ROW, ROW | {"id": "two"})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"logs\.csv"):
        read_rows(path)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("V0, December 2024 (0.6.5)", "V0"),
        ("0.22.1rc1.dev16+g7a1eb8ac2", "0.22"),
        ("September 2025 (0.10.x)", "0.9"),
        ("0.1.dev20073+g8e685d198 (August 2026)", "0.27"),
        ("early 2026", "0.14"),
        ("0.31.0", "0.29"),
    ],
)
def test_written_engine_versions_are_parsed(text, name):
    assert read_version(text).name == name


def test_invalid_engine_version_is_refused():
    with pytest.raises(RefusalError, match="does not name its version"):
        read_version("2026")


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        ("H100-80GB SXM", 79.18),
        ("80 GB class (79.22 GiB)", 79.22),
        ("NVIDIA H200", 139.8),
        ("RTX PRO 6000 (96 GB)", 94.97),
        ("NVIDIA H100 80GB HBM3", 79.18),
        ("2 x RTX 3090, NVLink bridge (24 GB)", None),
        ("4 x A100-SXM4-80GB", 79.15),
        ("RTX 4060 Laptop GPU", 7.63),
        ("A100 (40 GB)", 39.39),
        ("H100 94GB", 93.11),
        ("L40S 48GB", 44.39),
        ("2x A100 (160 GB)", 79.15),
        ("RTX 4060 Ti 16GB", 15.55),
        ("RTX 4060 Ti", None),
    ],
)
def test_written_device_names_are_parsed(text, gib):
    if gib is None:
        with pytest.raises(InputError, match="unknown device"):
            read_device(text)
    else:
        assert read_device(text).memory_bytes / 2**30 == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize("text", ["RTX 4090 48GB (modded)", "RTX 2080 Ti (22 GB)"])
def test_log_row_of_a_gpu_with_unusual_memory_is_not_sized(text):
    with pytest.raises(RefusalError, match="not that of the GPU named"):
        read_device(text)


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        ("awq_marlin", "int4"),
        ("auto_round (int4)", "int4"),
        ("modelopt (nvfp4)", "nvfp4"),
        ("gpt_oss_mxfp4", "mxfp4"),
        ("fp8 (online)", "fp8"),
        ("compressed-tensors", None),
        ("", None),
        ("none", "none"),
    ],
)
def test_written_quantisations_are_parsed(text, scheme):
    assert read_scheme(text) == scheme


def test_settings_in_the_notes_column_are_read():
    notes = read_notes("hybrid; expert parallel; MTP 3; prefix caching on; mamba ssm cache float16")
    assert notes == (3, True, True, "float16", None, None)
    notes = read_notes("no MTP; max_cudagraph_capture_size=2048; flashinfer_sampler=false")
    assert notes == (None, None, False, None, 2048, False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tp": "two"}, r"logs\.csv:2\.tp: not a whole number"),
        ({"max_model_len": "0"}, "max_model_len: too small; got 0; limit at least 1"),
        ({"weights_gib": "nan"}, "weights_gib: not a finite number"),
        ({"notes": "max_num_seqs=many"}, "max_num_seqs: not a whole number"),
    ],
)
def test_invalid_log_cells_are_named(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        read_rows(table(tmp_path / "logs.csv", ROW | changes))


def test_file_without_log_columns_is_refused(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="columns are missing"):
        read_rows(tmp_path / "other.csv")
    with pytest.raises(InputError, match="no rows"):
        read_rows(table(tmp_path / "none.csv"))
    with pytest.raises(InputError, match="cannot read"):
        read_rows(tmp_path / "nothing.csv")


def test_validate_logs_prints_text_and_json(tmp_path):
    path = table(tmp_path / "logs.csv", ROW, ROW | {"id": "two", "gpu": "not named"})
    words = CliRunner().invoke(app, ["validate", "logs", str(path)])
    assert words.exit_code == 0, words.output
    assert "2 logs: 1 sized, 1 refused" in words.stdout
    assert "two  Qwen/Qwen3-14B: the log does not name its GPU" in words.stdout
    plain = json.loads(CliRunner().invoke(app, ["validate", "logs", str(path), "--json"]).stdout)
    assert plain["summary"]["answered"] == 1
    assert [row["state"] for row in plain["rows"]] == ["sized", "refused"]


@pytest.mark.skipif(not LOGS.is_file(), reason="no startup-logs.csv in KVSIM_STARTUP_LOGS_DIR")
def test_collected_logs_have_a_median_pool_error_below_one_percent():
    summary = summarise([compare(row) for row in read_rows(LOGS)])
    assert summary.answered >= 0.95
    assert summary.pool.median <= 0.01
    assert summary.described.p90 <= 0.03
    assert summary.pool.p90 <= 0.05  # the utilisation of the worst ones is a guess
    assert summary.tokens.p90 <= 0.001


def test_narrow_table_breaks_names_after_separators_only(tmp_path, monkeypatch):
    """A line once broke into `google/gemma-3-12` and `b-it`. An error that rounds to 0 has no minus
    sign.
    """
    monkeypatch.setenv("COLUMNS", "62")
    changes = {"model": "google/gemma-3-12b-it", "engine_version": "0.19.0", "num_gpu_blocks": ""}
    changes |= {"available_kv_gib": "47.72", "kv_cache_tokens": "130304", "max_model_len": "8192"}
    path = table(tmp_path / "logs.csv", ROW | changes | {"kv_cache_dtype": "auto"})
    printed = CliRunner().invoke(app, ["validate", "logs", str(path)]).output
    parts = printed[printed.index("google/") :].split()
    assert {"gemma-3-12b-", "it"} <= set(parts), printed
    assert "-0.0 %" not in printed
