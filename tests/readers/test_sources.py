"""Every source format: its sample is known, read, and survives damage; secrets never leave it."""

import csv
import gzip
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.import_samples import PROMPT, SAMPLES, SECRET, UNIX_S, bench_result, lines, write

from kvsim.interchange.imported import import_sources, write_imported
from kvsim.plumbing.errors import InputError
from kvsim.readers import READERS
from kvsim.readers.description import Description
from kvsim.readers.detect import read_sources, readers
from kvsim.readers.reader import Sniffed, Source, look
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

LOGS = Path(os.environ.get("KVSIM_STARTUP_LOGS_DIR", "not given"))
# A setting, and its column in the table of logs.
COLUMNS = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "max_model_len": "max_model_len",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "block_size": "block_size",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "weights_gib": "weights_gib",
    "available_kv_gib": "available_kv_gib",
    "kv_cache_tokens": "kv_cache_tokens",
    "num_gpu_blocks": "num_gpu_blocks",
}
SOURCES = readers(Source)
GIVEN = {"gpu": "h100", "model": "facebook/opt-125m"}


def described(name: str, folder: Path) -> Description:
    (read,) = read_sources([str(SAMPLES[name](folder))], [])
    assert read.format == name
    return read.description


# --- contracts over the registry --------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "Qwen/Qwen3-8B --port 8000 --trust-remote-code",
        "--trust-remote-code Qwen/Qwen3-8B",
        "--port 8000 Qwen/Qwen3-8B --tensor-parallel-size 1",
        "--tensor-parallel-size 1 --chat-template a.jinja Qwen/Qwen3-8B",
        "--no-enable-log-requests --enforce-eager Qwen/Qwen3-8B",
        "--enable-auto-tool-choice --tool-call-parser hermes Qwen/Qwen3-8B",
        "--port=8000 Qwen/Qwen3-8B",
    ],
)
def test_model_argument_is_found_anywhere_in_a_command(words: str) -> None:
    (read,) = read_sources([f"vllm serve {words} --max-model-len auto"], [])
    assert read.description.settings.model == "Qwen/Qwen3-8B"
    assert any("max-model-len auto" in note for note in read.description.notes)


def read_text(folder: Path, name: str, text: str) -> Description:
    (folder / name).write_text(text)
    (read,) = read_sources([str(folder / name)], [])
    return read.description


def test_every_source_reader_has_a_sample_file() -> None:
    assert set(SAMPLES) == set(SOURCES)


@pytest.mark.parametrize("name", tuple(SOURCES))
def test_sample_is_recognised_by_its_own_reader_only(name: str, tmp_path: Path) -> None:
    source = look(SAMPLES[name](tmp_path))
    assert [other for other in SOURCES if SOURCES[other].sniff(source)] == [name]


@pytest.mark.parametrize("name", tuple(SOURCES))
def test_samples_contain_only_the_parts_their_reader_declares(name: str, tmp_path: Path) -> None:
    found = described(name, tmp_path)
    rows = found.requests.rows if found.requests else ()
    held = {
        "server": bool(found.settings.reported() or found.by_file),
        "stream": bool(rows or found.load),
        "measured": bool(found.measured or found.gauges or any(row.last_token_ns for row in rows)),
    }
    assert {part for part, here in held.items() if here} <= SOURCES[name].gives


def test_importing_page_lists_the_parts_of_each_reader() -> None:
    page = (Path(__file__).parents[2] / "docs" / "importing.md").read_text()
    told = re.findall(r"^\| (`[^|]*`) \|[^|]*\| ((?:\w+, )*\w+):", page, flags=re.MULTILINE)
    gives = {name: set(parts.split(", ")) for names, parts in told for name in names.split(", ")}
    assert gives == {f"`{name}`": set(cls.gives) for name, cls in SOURCES.items()}
    assert all(f"`{name}`" in page for name in READERS)


@pytest.mark.parametrize("name", tuple(SOURCES))
def test_imported_sample_writes_no_secret_or_prompt(name: str, tmp_path: Path) -> None:
    source = SAMPLES[name](tmp_path)
    out = tmp_path / "out" / "made.toml"
    imported = import_sources([str(source)], GIVEN, out)
    written = write_imported(imported, out)
    texts = [json.dumps(imported.as_dict(), default=str)]
    for path in written:
        files = path.iterdir() if path.is_dir() else [path]
        texts.extend(file.read_text() for file in files)
    assert not any(SECRET in text or PROMPT in text for text in texts)
    assert "[[allocator]]" in out.read_text()
    if imported.stream.workload is not None:
        count = len(Simulation(Scenario.load(out)).stream.requests)
        assert count == (len(imported.stream.lines or ()) or count)


@pytest.mark.parametrize("name", tuple(SOURCES))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_sample_is_a_one_line_error(name: str, tmp_path: Path, data: st.DataObject) -> None:
    path = SAMPLES[name](tmp_path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    for argument in (str(path), f"{name}={path}"):
        with suppress(InputError):  # anything else fails the test
            read_sources([argument], [])


# --- formats ----------------------------------------------------------------------------------


def test_command_line_memory_flags_become_settings(tmp_path: Path) -> None:
    found = described("vllm-command", tmp_path)
    assert found.settings.reported() == {
        "engine": "vllm",
        "model": "facebook/opt-125m",
        "num_gpu_blocks": 4000,
        "enable_prefix_caching": False,
        "max_num_seqs": 64,
    }
    assert found.notes == ("flags that are not read: --api-key",)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("vllm serve m --max-model-len 32k", {"max_model_len": 32_000}),
        ("vllm serve m --max-model-len=32K", {"max_model_len": 32_768}),
        ("vllm serve m -tp 4 --enforce-eager", {"tensor_parallel_size": 4, "enforce_eager": True}),
        ("vllm serve m --kv-cache-dtype fp8_e4m3 --dtype half", {"kv_cache_dtype": "fp8"}),
        ("vllm serve m --max_num_seqs 8 && echo --block-size 9", {"max_num_seqs": 8}),
        ("python -m vllm.entrypoints.openai.api_server --model m --block-size 32",
         {"block_size": 32}),
        ("docker run --gpus all vllm/vllm-openai:v0.19.1 --model m", {"engine_version": "0.19.1"}),
        ("vllm serve m --max-model-len auto --quantization awq", {}),
        ("vllm serve m --scheduling-policy priority --async-scheduling false",
         {"policy": "priority", "async_scheduling": False}),
    ],
)  # fmt: skip
def test_vllm_command_lines_become_settings(words: str, expected: dict[str, object]) -> None:
    (read,) = read_sources([words], [])
    said = read.description.settings.reported()
    assert said.pop("model") == "m"
    assert expected.items() <= said.items()
    assert said.keys() - expected.keys() <= {"engine", "dtype"}


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("vllm serve m --block-size", "without its value"),
        ("vllm serve m --block-size ten", "not a count"),
        ("vllm serve m --block-size 'x", "not a command line"),
        ("vllm serve m --gpu-memory-utilization 1.5", "too large; got 1.5; limit at most 1"),
    ],
)
def test_invalid_command_line_is_refused(words: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        read_sources([words], [])


MANIFESTS = {
    "block": """
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.19.1
        command: ["vllm", "serve", "Qwen/Qwen3-8B"]
        args:
        - --max-num-seqs=64
        - "--tensor-parallel-size"
        - "2"  # both GPUs
        - --api-key
        - SECRET
        env:
        - name: HF_TOKEN
          value: SECRET
    """,
    "inline": """
    services:
      vllm:
        image: vllm/vllm-openai:v0.19.1
        command: ["--model", "Qwen/Qwen3-8B", "--max-num-seqs", "64",
                  "--tensor-parallel-size=2"]
    """,
    "shell": """
        image: vllm/vllm-openai:v0.19.1
        command: ["/bin/sh", "-c"]
        args:
        - "vllm serve Qwen/Qwen3-8B --max-num-seqs 64 --tensor-parallel-size 2"
    """,
    "folded": """
        image: vllm/vllm-openai:v0.19.1
        command: >
          --model Qwen/Qwen3-8B
          --max-num-seqs 64 -tp 2
        ports: ["8000:8000"]
    """,
}


@pytest.mark.parametrize("form", MANIFESTS)
def test_vllm_command_in_a_manifest_becomes_settings(form: str, tmp_path: Path) -> None:
    path = write(tmp_path / "deployment.yaml", MANIFESTS[form].replace("SECRET", SECRET))
    (read,) = read_sources([str(path)], [])
    assert read.format == "vllm-command"
    assert read.description.settings.reported() == {
        "engine": "vllm",
        "engine_version": "0.19.1",
        "model": "Qwen/Qwen3-8B",
        "max_num_seqs": 64,
        "tensor_parallel_size": 2,
    }
    assert SECRET not in str(read)


def test_vllm_log_gives_settings_and_gauges(tmp_path: Path) -> None:
    found = described("vllm-log", tmp_path)
    said = found.settings.reported()
    assert said["engine_version"] == "0.22.1"
    assert (said["num_gpu_blocks"], said["kv_cache_tokens"]) == (4000, 64_000)
    assert (said["available_kv_gib"], said["max_model_len"]) == (60.0, 2048)
    assert found.gauges is not None
    (first, second) = found.gauges.samples
    assert (first.running, first.waiting, first.usage) == (2, 1, 0.125)
    assert second.time_ns - first.time_ns == 10 * 10**9


@pytest.mark.skipif(not LOGS.is_dir(), reason="KVSIM_STARTUP_LOGS_DIR has no logs")
def test_settings_of_69_real_vllm_logs_equal_a_manual_reading() -> None:
    """Excerpts of 69 logs of vLLM 0.6 to 0.33, and what people read off each."""
    with (LOGS / "startup-logs.csv").open(newline="") as file:
        told = {row["id"]: row for row in csv.DictReader(file)}
    parts = re.split(r"^## (log\d+) .*$", (LOGS / "excerpts.txt").read_text(), flags=re.MULTILINE)
    compared, known = 0, 0
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        source = Sniffed(Path(name), text.encode(), text, None, [])
        if not SOURCES["vllm-log"].sniff(source):
            continue
        known += 1
        said = SOURCES["vllm-log"].read(source).settings.reported()
        for setting, column in COLUMNS.items():
            if setting in said and told[name][column]:
                compared += 1
                assert said[setting] == pytest.approx(float(told[name][column])), (name, setting)
    assert known > 0.8 * len(told)
    assert compared > 4 * known


def _in_json(key: str) -> Callable[[str], str]:
    return lambda line: json.dumps({"time": "2026-11-20T12:00:01Z", key: f"{line}\n"})


@pytest.mark.parametrize(
    "carried",
    [
        lambda line: f"\x1b[1;36m(EngineCore_DP0 pid=123)\x1b[0;0m {line}",
        lambda line: f"(RayWorkerWrapper pid=1234, ip=10.0.0.2) {line}",
        lambda line: f"2026-11-20T12:00:01.123456789Z stderr F {line}",
        lambda line: f"Nov 20 12:00:01 host vllm[1234]: {line}",
        lambda line: f"vllm-1  | {line}",
        lambda line: f"{line}\r",
        _in_json("log"),
        _in_json("msg"),
    ],
    ids=["ansi", "ray", "kubernetes", "systemd", "compose", "crlf", "docker", "json"],
)
def test_log_is_read_equally_with_any_line_prefix(
    carried: Callable[[str], str], tmp_path: Path
) -> None:
    path = SAMPLES["vllm-log"](tmp_path)
    (plain,) = read_sources([str(path)], [])
    path.write_text("".join(f"{carried(line)}\n" for line in path.read_text().splitlines()))
    (read,) = read_sources([str(path)], [])
    assert read.format == "vllm-log"
    assert read.description.settings == plain.description.settings
    assert read.description.gauges is not None


BOTH = "GPU KV cache size: 1,024 tokens, Maximum concurrency for 512 tokens per request: 2.00x"


@pytest.mark.parametrize(
    ("line", "setting", "value"),
    [
        # 0.33 says both in one line, of whichever device
        (BOTH, "kv_cache_tokens", 1024),
        (BOTH, "max_model_len", 512),
        ("XPU KV cache size: 2,048 tokens", "kv_cache_tokens", 2048),
        ("GPU + host KV cache size: 4,096 tokens", "kv_cache_tokens", 4096),
        (
            "model weights take 14.99GiB; the rest of the memory reserved for KV Cache is 54.84GiB",
            "available_kv_gib",
            54.84,
        ),
        ("# cuda blocks: 27,000, # CPU blocks: 2048", "num_gpu_blocks", 27_000),
        ("Setting attention block size to 1056 tokens to ensure", "block_size", 1056),
    ],
)
def test_log_lines_of_several_vllm_versions_are_read(
    line: str, setting: str, value: float, tmp_path: Path
) -> None:
    path = write(tmp_path / "server.log", f"INFO 11-20 12:00:01 {line}\nINFO GPU KV cache size:\n")
    (read,) = read_sources([str(path)], [])
    assert read.description.settings.reported()[setting] == value


def test_vllm_development_build_has_no_engine_version(tmp_path: Path) -> None:
    path = SAMPLES["vllm-log"](tmp_path)
    path.write_text(path.read_text().replace("0.22.1", "0.1.dev20073+g8e685d198"))
    (read,) = read_sources([str(path)], [])
    assert read.description.settings.engine_version is None
    assert any("a build of your own" in note for note in read.description.notes)


def test_unknown_sglang_schedule_policy_is_left_out_with_a_note(tmp_path: Path) -> None:
    path = SAMPLES["sglang-log"](tmp_path)
    path.write_text(path.read_text().replace("page_size=1", "schedule_policy='slowest-first'"))
    (read,) = read_sources([str(path)], [])
    assert read.description.settings.schedule_policy is None
    assert "slowest-first" in read.description.notes[0]


def test_log_with_two_server_starts_gives_the_last_ones_settings(tmp_path: Path) -> None:
    path = SAMPLES["vllm-log"](tmp_path)
    again = path.read_text().replace("64,000 tokens", "48,000 tokens").replace("4000", "3000")
    path.write_text(path.read_text() + again)
    (read,) = read_sources([str(path)], [])
    assert read.description.settings.num_gpu_blocks == 3000
    assert read.description.settings.kv_cache_tokens == 48_000
    assert "2 starts" in read.description.notes[0]


def test_vllm_scrape_gives_pool_and_counters(tmp_path: Path) -> None:
    found = described("vllm-metrics", tmp_path)
    assert found.settings.num_gpu_blocks == 4000
    assert found.settings.max_model_len == 2048  # tokens over concurrency
    assert found.measured == {"preemptions": 3.0, "e2e_mean_s": 0.5}


def test_sglang_scrape_gives_pool_host_cache_and_hits(tmp_path: Path) -> None:
    found = described("sglang-metrics", tmp_path)
    assert found.settings.kv_cache_tokens == 64_000
    assert found.settings.block_size == 64
    assert found.settings.enable_hierarchical_cache
    assert found.settings.hicache_ratio == 3.0
    assert found.measured == {  # those of one rank
        "prompt_tokens": 5000.0,
        "prefix_cache_hit_tokens": 1100.0,
        "tier_hit_tokens": 700.0,
        "evicted_tokens": 900.0,
        "tier_loaded_tokens": 700.0,
        "tier_load_busy_s": 0.25,
        "ttft_mean_s": 0.5,
    }


@pytest.mark.parametrize("newer", [True, False])
def test_vllm_scrape_gives_the_bandwidth_of_tier_copies(tmp_path: Path, newer: bool) -> None:
    path, labels = SAMPLES["vllm-metrics"](tmp_path), 'engine="0",model_name="facebook/opt-125m"'
    older = "".join(
        f'vllm:kv_offload_total_{what}_total{{{labels},transfer_type="{way}"}} {value}\n'
        for what, way, value in (
            ("bytes", "GPU_to_CPU", 6e9),
            ("bytes", "CPU_to_GPU", 1e9),
            ("time", "GPU_to_CPU", 0.5),
            ("time", "CPU_to_GPU", 0.02),
        )
    )
    names = ("store_bytes 6e9", "load_bytes 1e9", "store_time 0.5", "load_time 0.02")
    each = (name.split() for name in names)
    same = "".join(f"vllm:kv_offload_{name}_total{{{labels}}} {value}\n" for name, value in each)
    hits = f"vllm:external_prefix_cache_hits_total{{{labels}}} 48.0\n"
    path.write_text(path.read_text() + hits + older + (same if newer else ""))
    (read,) = read_sources([str(path)], [])
    found = read.description
    assert (found.settings.store_gb_per_s, found.settings.load_gb_per_s) == (12.0, 50.0)
    assert found.measured["tier_stored_bytes"] == 6e9  # told under both names, counted once
    assert found.measured["tier_hit_tokens"] == 48.0
    flags = "vllm serve facebook/opt-125m --kv-offloading-size 4"
    imported = import_sources([flags, str(path)], {"gpu": "a100-40gb"}, tmp_path / "out.toml")
    (tier,) = imported.scenario["tier"]
    assert tier == {
        "kind": "vllm-offloading",
        "kv_offloading_size": 4.0,
        "store_gb_per_s": 12.0,
        "load_gb_per_s": 50.0,
    }


def test_vllm_scrape_gives_the_bandwidth_of_kv_transfers(tmp_path: Path) -> None:
    """30 GB in 2 s by vLLM's NIXL metrics, 1024 MiB in 100 ms by SGLang's."""
    added = {
        "vllm-metrics": "vllm:nixl_bytes_transferred_sum 3e10\n"
        "vllm:nixl_xfer_time_seconds_sum 2.0\n"
        "vllm:nixl_xfer_time_seconds_count 40\nvllm:nixl_num_kv_expired_reqs_total 3\n",
        "sglang-metrics": "sglang:kv_transfer_total_mb_sum 1024\n"
        "sglang:kv_transfer_latency_ms_sum 100\nsglang:kv_transfer_latency_ms_count 4\n",
    }
    for name, speed, count in (("vllm-metrics", 15.0, 40), ("sglang-metrics", 10.73741824, 4)):
        path = SAMPLES[name](tmp_path)
        path.write_text(path.read_text() + added[name])
        (read,) = read_sources([str(path)], [])
        measured = read.description.measured
        assert measured["kv_transfer_gb_per_s"] == pytest.approx(speed)
        assert measured["kv_transfers"] == count
        assert any(f"link_gb_per_s = {speed:.3g}" in note for note in read.description.notes)
    assert "kv_expired_prompts" not in measured


def test_detailed_bench_result_gives_single_requests(tmp_path: Path) -> None:
    found = described("vllm-bench", tmp_path)
    assert found.requests is not None
    first, second = found.requests.rows  # the third failed
    assert (first.prompt_tokens, first.output_tokens) == (10, 3)
    assert (second.arrival_ns, second.first_token_ns, second.last_token_ns) == (
        5_250_000_000,
        5_450_000_000,
        5_750_000_000,
    )
    assert found.measured["ttft_mean_s"] == 0.1
    assert found.measured["e2e_p99_s"] == 0.5


def test_each_printed_benchmark_table_is_one_result(tmp_path: Path) -> None:
    text = SAMPLES["bench-text"](tmp_path).read_text()
    commented = "".join(f"# {line}\n" for line in text.splitlines())
    path = write(tmp_path / "log.txt", f"{text}\n{commented.replace('100.00', '300.00')}")
    reads = read_sources([str(path)], [])
    assert [read.description.measured for read in reads] == [
        {"ttft_mean_s": ttft, "tpot_p50_s": 0.025, "e2e_p99_s": 0.5, "duration_s": 1.5}
        for ttft in (0.1, 0.3)
    ]
    load = reads[1].description.load
    assert load is not None
    assert (load.num_requests, load.prompt_tokens, load.rate_per_s) == (2, 15, 4)


def test_starts_in_a_full_closed_loop_follow_from_the_latencies(tmp_path: Path) -> None:
    result = bench_result()
    del result["start_times"]
    path = write(tmp_path / "bench.json", json.dumps(result))
    (read,) = read_sources([str(path)], [])
    assert read.description.requests is not None
    # Two at once; the third waits for the one of 0.3 s.
    assert [row.arrival_ns for row in read.description.requests.rows] == [0, 0]
    assert "first of 2 in flight" in " ".join(read.description.notes)


def test_each_bench_result_in_one_file_is_one_source(tmp_path: Path) -> None:
    path = lines(tmp_path / "bench.json", [bench_result(), bench_result() | {"completed": 1}])
    reads = read_sources([str(path)], [])
    assert [read.name for read in reads] == ["bench.json, result 1", "bench.json, result 2"]
    assert [getattr(read.description.load, "num_requests", 0) for read in reads] == [2, 1]


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("aiperf", (0, 100_500_000, 400_250_000)),
        ("guidellm", (500_000_000, 750_000_000, 1_500_000_000)),
        ("blis-tracev2", (0, 1_000_000, 5_000_000)),
        ("otel-spans", (0, 250_000_000, 750_000_000)),
    ],
)
def test_measured_times_are_exact_to_the_nanosecond(
    name: str, times: tuple[int, int, int], tmp_path: Path
) -> None:
    found = described(name, tmp_path)
    assert found.requests is not None
    assert found.requests.clock == "unix"
    (row,) = found.requests.rows
    assert (row.arrival_ns, row.first_token_ns, row.last_token_ns) == tuple(
        UNIX_S * 10**9 + after for after in times
    )
    assert row.output_tokens == 4


def test_inference_perf_times_keep_their_own_clock(tmp_path: Path) -> None:
    found = described("inference-perf", tmp_path)
    assert found.requests is not None
    (row,) = found.requests.rows
    assert (row.arrival_ns, row.first_token_ns) == (100_250_000_000, 100_500_000_000)
    assert row.last_token_ns == 101_000_000_000  # the last token, not the end of the connection
    assert found.requests.clock == "own"


def test_dynamo_requests_are_sorted_and_share_block_ids(tmp_path: Path) -> None:
    found = described("dynamo-trace", tmp_path)
    assert found.requests is not None
    early, late = found.requests.rows
    assert (early.id, early.hash_ids) == ("early", (0, 1))
    assert (late.id, late.hash_ids) == ("late", (0, 2))  # the first block is shared
    assert found.requests.hash_block_tokens == 64
    assert late.arrival_ns == UNIX_S * 10**9 + 500_000_000
    assert late.last_token_ns == UNIX_S * 10**9 + 750_000_000


def test_folder_of_rotated_dynamo_files_is_one_trace(tmp_path: Path) -> None:
    path = SAMPLES["dynamo-trace"](tmp_path)
    late, early = path.read_text().splitlines()
    folder = tmp_path / "rotated"
    folder.mkdir()
    write(folder / "trace.000.jsonl", f"{late}\n")
    (folder / "trace.001.jsonl.gz").write_bytes(gzip.compress(f"{early}\n".encode()))
    (read,) = read_sources([str(folder)], [])
    assert read.description.requests == described("dynamo-trace", tmp_path).requests


def test_aiperf_summary_gives_mean_load_and_time_slices_give_gauges(tmp_path: Path) -> None:
    def mean(value: float) -> dict[str, Any]:
        return {"unit": "", "avg": value}

    folder = tmp_path / "run"
    folder.mkdir()
    summary = {
        "aiperf_version": "0.12.0",
        "request_latency": mean(1500.0),
        "request_count": mean(20.0),
        "input_sequence_length": mean(100.0),
        "output_sequence_length": mean(30.0),
        "input_config": {"phases": [{"kind": "profiling", "type": "concurrency",
                                     "concurrency": 4}]},
    }  # fmt: skip
    write(folder / "profile_export_aiperf.json", json.dumps(summary))
    slices = [{"start_ns": at, "end_ns": at + 10**9, "avg": 0.25, "min": 0, "max": 1}
              for at in (0, 10**9)]  # fmt: skip
    series = [{"endpoint_url": "x", "labels": {}, "stats": {}, "timeslices": slices}]
    export = {"metrics": {"vllm:kv_cache_usage_perc": {"type": "gauge", "series": series}}}
    write(folder / "server_metrics_export.json", json.dumps(export))
    (read,) = read_sources([str(folder)], [])
    load, gauges = read.description.load, read.description.gauges
    assert load is not None
    assert (load.num_requests, load.prompt_tokens, load.max_concurrency) == (20, 100.0, 4)
    assert gauges is not None
    assert [sample.usage for sample in gauges.samples] == [0.25, 0.25]


def test_lmcache_lookups_give_hash_ids_without_output_lengths(tmp_path: Path) -> None:
    found = described("lmcache-lookup", tmp_path)
    assert found.requests is not None
    assert found.requests.hash_block_tokens == 256
    assert [row.hash_ids for row in found.requests.rows] == [(0, 1), (0, 2)]
    assert [row.output_tokens for row in found.requests.rows] == [None, None]


def test_pools_of_sglang_and_tensorrt_llm_logs_are_read(tmp_path: Path) -> None:
    sglang = described("sglang-log", tmp_path).settings
    assert (sglang.engine, sglang.kv_cache_tokens, sglang.block_size) == ("sglang", 171_008, 1)
    assert (sglang.max_num_seqs, sglang.enable_prefix_caching) == (2048, True)
    assert (sglang.chunked_prefill_size, sglang.max_prefill_tokens) == (8192, 16384)
    trt = described("trtllm-log", tmp_path).settings  # the second pool, not the profiled one
    assert (trt.engine, trt.kv_cache_tokens, trt.block_size) == ("tensorrt-llm", 220_480, 64)
    assert (trt.max_num_seqs, trt.capacity_policy) == (64, "guaranteed-no-evict")


_OF_TENSORRT = (  # as the PyTorch backend prints it
    "[12/20/2025-04:21:50] [TRT-LLM] [I] Memory used after loading model weights (inside torch) in "
    "memory usage profiling: 63.52 GiB\n"
    "[12/20/2025-04:21:51] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + "
    "non-torch): 113.65 GiB, available KV cache memory when calculating max tokens: 5.95 GiB, "
    "fraction is set 0.8999999761581421, kv size is 73728. device total memory 119.70 GiB, , tmp "
    "kv_mem 0.56 GiB\n"
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 5.95 GiB for max tokens in paged KV cache "
    "(86720).\n"
)


def test_tensorrt_llm_memory_profile_gives_gpu_weights_and_fraction(tmp_path: Path) -> None:
    found = read_text(tmp_path, "trt.log", _OF_TENSORRT).settings
    assert (found.gpu_memory_gib, found.weights_gib) == (119.70, 63.52)
    assert (found.free_gpu_memory_fraction, found.kv_cache_tokens) == (0.8999999761581421, 86_720)


def test_request_table_counts_latency_from_the_real_send_time(tmp_path: Path) -> None:
    found = described("requests-table", tmp_path)
    assert found.requests is not None
    (row,) = found.requests.rows
    assert (row.arrival_ns, row.first_token_ns, row.last_token_ns) == (
        250_000_000,
        750_000_000,
        1_500_000_000,
    )
    path = write(
        tmp_path / "other.csv",
        "id,arrival_s,prompt_tokens,output_tokens,ttft_s,e2e_s\na,2.5,10,4,0.25,1.0\n",
    )
    (read,) = read_sources([str(path)], [])
    assert read.description.requests is not None
    (row,) = read.description.requests.rows
    assert (row.first_token_ns, row.last_token_ns) == (2_750_000_000, 3_500_000_000)


def test_number_followed_by_words_is_read_with_a_note(tmp_path: Path) -> None:
    found = described("settings-json", tmp_path)
    assert found.settings.num_gpu_blocks == 4000
    assert found.settings.max_num_seqs == 256  # "256 by the plan"
    assert "max_num_seqs: '256 by the plan' is read as 256" in found.notes


def test_trace_with_an_unusual_block_size_is_read(tmp_path: Path) -> None:
    found = described("trace", tmp_path)
    assert found.requests is not None
    assert found.requests.hash_block_tokens == 64
    assert "blocks of 64 tokens" in " ".join(found.notes)


@pytest.mark.parametrize("lacks", ["time_to_first_token", "request_latency"])
def test_latency_missing_in_inference_perf_drops_only_its_own_figures(
    tmp_path: Path, lacks: str
) -> None:
    latency = {
        name: {"mean": 0.5, "median": 0.4, "p99": 2.0}
        for name in ("time_to_first_token", "request_latency")
    }
    del latency[lacks]
    report = {
        "load_summary": {"count": 4, "requested_rate": 2.0},
        "successes": {
            "count": 4, "latency": latency, "prompt_len": {"mean": 10.0}, "output_len": {"mean": 5}
        },
        "failures": {"count": 0},
    }  # fmt: skip
    (read,) = read_sources([str(write(tmp_path / "summary.json", json.dumps(report)))], [])
    measured = read.description.measured
    figures = {"time_to_first_token": "ttft", "request_latency": "e2e"}
    other = figures[next(iter(latency))]
    assert measured[f"{other}_mean_s"] == 0.5
    assert not any(name.startswith(figures[lacks]) for name in measured)
    assert read.description.load is not None


DRAFTS = "{'method': 'eagle3', 'model': 'x/y-eagle', 'num_speculative_tokens': 3}"
PRINTED = "SpeculativeConfig(method='eagle3', model='x/y-eagle', num_spec_tokens=3)"
_ASKED = "INFO non-default args: {'model': 'm', 'quantization': 'awq', 'speculative_config': %s}\n"
_BUILT = (
    "INFO Initializing a V1 LLM engine (v0.11.0) with config: model='m', speculative_config=%s, "
    "tokenizer='m', quantization=awq, seed=0\n"
)
_OF_SGLANG = (
    "server_args=ServerArgs(model_path='m', quantization='awq', speculative_algorithm=%s, tp_size=1"
    ")"
    "\nmax_total_num_tokens=1000\n"
)


@pytest.mark.parametrize("text", [_ASKED % DRAFTS, _BUILT % PRINTED], ids=["asked", "built"])
def test_vllm_log_gives_speculative_config_and_notes_quantization(
    tmp_path: Path, text: str
) -> None:
    found = read_text(tmp_path, "server.log", text)
    drafts = {"method": "eagle3", "model": "x/y-eagle", "num_speculative_tokens": 3}
    assert found.settings.speculative_config == drafts
    assert any("quantization awq" in note for note in found.notes)
    assert not any("left out" in note for note in found.notes)
    connected = text + _BUILT % "None, kv_transfer_config=KVTransferConfig(kv_connector='Nixl')"
    assert any("Nixl" in note for note in read_text(tmp_path, "b.log", connected).notes)


def test_speculative_decoding_that_is_not_simulated_is_noted(tmp_path: Path) -> None:
    vague = read_text(tmp_path, "vague.log", _BUILT % "<vllm.config.SpeculativeConfig object>")
    eagle = read_text(tmp_path, "sglang.log", _OF_SGLANG % "'EAGLE'")
    plain = read_text(tmp_path, "plain.log", _OF_SGLANG % "None")
    assert "speculative_algorithm=EAGLE" in " ".join(eagle.notes)
    assert "awq" in " ".join(plain.notes)
    assert "speculative" not in " ".join(plain.notes)
    assert any("speculative" in note for note in vague.notes)


def test_settings_json_gives_speculative_config_and_capture_sizes(tmp_path: Path) -> None:
    table = {
        "model": "m", "max_num_seqs": 8, "max_model_len": 100, "quantization": "gptq",
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 2},
        "cudagraph_capture_sizes": [1, 2, 64],
    }  # fmt: skip
    found = read_text(tmp_path, "meta.json", json.dumps(table))
    assert found.settings.speculative_config == table["speculative_config"]
    assert found.settings.max_cudagraph_capture_size == 64
    assert any("gptq" in note for note in found.notes)
