"""Sources together: a server described three ways, a real run in another dress, contradictions."""

import csv
import json
import os
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.aiperf_folder import write_aiperf_folder, write_records
from support.import_samples import SAMPLES, bench_result, lines, write
from typer.testing import CliRunner

import kvsim
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.sizing import size
from kvsim.cli import app
from kvsim.device import named_device
from kvsim.interchange.imported import (
    Imported,
    ImportOptions,
    import_results,
    import_sources,
    write_imported,
)
from kvsim.interchange.to_scenario.served import served_model
from kvsim.interchange.to_scenario.server import server_of
from kvsim.interchange.to_scenario.stages import staged as staged_over
from kvsim.model import ModelOptions
from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.errors import InputError
from kvsim.readers.description import ServerSettings
from kvsim.readers.parsing.fields import MOST_TOKENS
from kvsim.readers.reader import Sniffed
from kvsim.readers.vllm.log import VllmLog
from kvsim.readers.vllm.metric_names import cache_settings
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step_time.calibrated.file import find_calibration
from kvsim.validate.run.comparison import compare_run

LOGS = Path(os.environ.get("KVSIM_STARTUP_LOGS_DIR", "not given"))
FORMATS = Path(os.environ.get("KVSIM_FORMATS_DIR", "not given"))
REAL = Path(os.environ.get("KVSIM_REAL_RUNS_DIR", "not given")) / "rtx4090_llama-3.1-8b"
formats = pytest.mark.skipif(not FORMATS.is_dir(), reason="KVSIM_FORMATS_DIR has no samples")
real = pytest.mark.skipif(not REAL.is_dir(), reason="KVSIM_REAL_RUNS_DIR has no recorded run")
OPT = {"gpu": "h100", "model": "facebook/opt-125m"}


def imported(folder: Path, *sources: Path | str, **given: Any) -> Imported:
    out = folder / "made.toml"
    found = import_sources([str(source) for source in sources], given, out)
    write_imported(found, out)
    return found


# --- one server, three descriptions -----------------------------------------------------------


def test_command_line_log_and_metrics_make_the_same_scenario(tmp_path: Path) -> None:
    texts = []
    given = {"gpu": "h100", "engine_version": "0.22.1", "max_num_seqs": 64}
    for name in ("vllm-command", "vllm-log", "vllm-metrics"):
        folder = tmp_path / name
        folder.mkdir()
        imported(folder, SAMPLES[name](tmp_path), **given)
        texts.append((folder / "made.toml").read_text())
    assert texts[0] == texts[1] == texts[2]
    table = tomllib.loads(texts[0])
    assert table["memory"] == {"num_gpu_blocks": 4000}
    assert table["model"] == {
        "name": "facebook/opt-125m",
        "tensor_parallel_size": 1,
        "max_model_len": 2048,
    }
    assert table["allocator"] == [
        {"kind": "paged", "block_size": 16, "enable_prefix_caching": False}
    ]


def test_three_agreeing_sources_give_the_same_scenario(tmp_path: Path) -> None:
    sources = [SAMPLES[name](tmp_path) for name in ("vllm-command", "vllm-log", "vllm-metrics")]
    together = imported(tmp_path, *sources, gpu="h100")
    assert together.contradictions == ()
    assert together.merged.origins["num_gpu_blocks"] == "server.log"  # before what was asked for
    assert together.merged.origins["gpu"] == "given here"
    assert together.scenario["memory"] == {"num_gpu_blocks": 4000}


def test_import_reads_all_files_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    for name in ("vllm-log", "vllm-metrics", "vllm-bench"):
        SAMPLES[name](folder)
    write(folder / "notes.txt", "nothing to import")
    found = imported(tmp_path, folder, gpu="h100")
    assert [read.format for read in found.reads] == ["vllm-bench", "vllm-metrics", "vllm-log"]
    assert "notes.txt" in " ".join(found.notes)


def test_contradicting_sources_are_listed_and_the_engine_log_wins(tmp_path: Path) -> None:
    command = write(tmp_path / "serve.sh", "vllm serve facebook/opt-125m --block-size 32\n")
    found = imported(tmp_path, command, SAMPLES["vllm-metrics"](tmp_path), gpu="h100")
    (contradiction,) = found.contradictions
    assert (contradiction.what, contradiction.kept, contradiction.left) == ("block_size", 16, 32)
    assert str(contradiction) == ("block_size: 16 by metrics.txt is kept, 32 by serve.sh is not")


def test_other_engines_get_their_own_schedulers(tmp_path: Path) -> None:
    sglang = imported(tmp_path, SAMPLES["sglang-log"](tmp_path), gpu="h100").scenario
    assert sglang["allocator"] == [{"kind": "radix", "page_size": 1, "disable_radix_cache": False}]
    assert sglang["memory"] == {"kv_cache_tokens": 171_008}
    assert sglang["scheduler"] == {
        "kind": "sglang",
        "max_prefill_tokens": 16384,
        "max_running_requests": 2048,
        "chunked_prefill_size": 8192,
    }
    requests = [Request(f"r{i}", i * 10**11, 300, 40) for i in range(5)]
    (run,) = kvsim.simulate(Scenario.load(tmp_path / "made.toml"), requests).runs
    assert run.summary["requests"]["finished"] == 5
    trt = imported(tmp_path, SAMPLES["trtllm-log"](tmp_path), **OPT).scenario
    assert trt["scheduler"]["kind"] == "trt-llm"
    assert trt["memory"] == {"num_gpu_blocks": 220_480 // 64}


def test_assumed_settings_of_sglang_are_its_own_defaults(tmp_path: Path) -> None:
    """SGLang's default chunk goes by the GPU's memory: 4,096 tokens on an L40S, where an API
    server of vLLM has 2,048.
    """
    command = "python -m sglang.launch_server --model-path facebook/opt-125m --page-size 16"
    found = imported(tmp_path, command, gpu="l40s")
    assert found.scenario["memory"] == {"mem_fraction_static": "auto"}
    assert found.scenario["scheduler"]["chunked_prefill_size"] == 4096
    assert "chunked_prefill_size = 4096: SGLang's default" in found.assumed
    assert not [line for line in found.assumed if "vLLM" in line or "block_size" in line]
    trt = imported(tmp_path, "trtllm-serve facebook/opt-125m", gpu="l40s")
    assert trt.scenario["scheduler"]["max_num_seqs"] == 2048  # vLLM on this GPU: 256
    assert not [line for line in trt.assumed if "vLLM" in line]
    assert trt.scenario["memory"] == {"free_gpu_memory_fraction": "auto"}


@pytest.mark.parametrize(
    ("image", "command", "told"),
    [
        (
            "lmsysorg/sglang:v0.4.6",
            "sglang serve",
            ["counts for the times of steps: the rules are SGLang 0.5.23's"],
        ),
        ("lmsysorg/sglang:v0.5.23", "sglang serve", []),
        (
            "nvcr.io/nvidia/tensorrt-llm/release:0.20.0",
            "trtllm-serve",
            ["changes nothing: the rules are those of one version"],
        ),
    ],
)
def test_import_notes_settings_that_depend_on_the_version(
    tmp_path: Path, image: str, command: str, told: list[str]
) -> None:
    line = f"docker run --gpus all {image} {command} facebook/opt-125m"
    found = imported(tmp_path, line, gpu="l40s")
    version = image.partition(":")[2].removeprefix("v")
    wanted = [f"engine_version = {version} {each}" for each in told]
    assert [each for each in found.assumed if "engine_version" in each] == wanted


@pytest.mark.parametrize("missing", ["gpu", "model"])
def test_import_without_a_model_or_gpu_asks_for_it(missing: str, tmp_path: Path) -> None:
    given = {key: value for key, value in OPT.items() if key != missing}
    with pytest.raises(InputError, match="no source names"):
        imported(tmp_path, SAMPLES["trtllm-log"](tmp_path), **given)


def test_device_is_inferred_from_a_unique_memory_size(tmp_path: Path) -> None:
    log = SAMPLES["vllm-log"](tmp_path)
    line = "(W) INFO 06-10 20:36:00 [w.py:1] Free memory on device (23.0/{} GiB) on startup.\n"
    log.write_text(line.format("31.73") + log.read_text())
    found = imported(tmp_path, log)
    assert found.scenario["device"]["name"] == "v100-32gb"
    assert any("v100-32gb" in line for line in found.assumed)


# --- requests ---------------------------------------------------------------------------------


def test_lmcache_lookups_get_output_lengths_from_otel_spans(tmp_path: Path) -> None:
    spans = SAMPLES["otel-spans"](tmp_path)
    other = json.loads(spans.read_text())
    found = other["resourceSpans"][0]["scopeSpans"][0]["spans"]
    span = json.dumps(found[1])
    found[:] = [
        json.loads(span.replace("cmpl-s", name).replace('"10"', '"600"'))
        for name in ("cmpl-y", "cmpl-x")
    ]
    lines(spans, [other])
    made = imported(tmp_path, SAMPLES["lmcache-lookup"](tmp_path), spans, gpu="h100")
    text = (tmp_path / "made.requests.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert made.scenario["workload"]["hash_block_tokens"] == 256
    # Two full chunks each, and the rest of the prompt, which nobody hashed.
    assert {tuple(row["hash_ids"]) for row in rows} == {(0, 1, 4), (0, 2, 3)}
    assert {row["output_length"] for row in rows} == {4}
    kvsim.simulate(Scenario.load(tmp_path / "made.toml"))  # it runs


def test_requests_of_another_run_are_left_out_with_a_note(tmp_path: Path) -> None:
    made = imported(
        tmp_path, SAMPLES["vllm-bench"](tmp_path), SAMPLES["trace"](tmp_path), gpu="h100"
    )
    assert "are left out" in " ".join(made.notes)
    assert made.merged.requests is not None
    assert made.merged.requests.hash_block_tokens is None


def test_requests_are_imported_in_order_of_arrival(tmp_path: Path) -> None:
    result = bench_result() | {"start_times": [6.0, 5.0, 5.5]}
    path = write(tmp_path / "bench.json", json.dumps(result))
    looped = imported(tmp_path, path, gpu="h100")  # at most so many in flight, all at once
    sent = [json.loads(line)["input_length"] for line in looped.stream.lines or ()]
    assert sent == [20, 10]
    assert looped.scenario["workload"]["arrivals"]["kind"] == "closed-loop"
    del result["max_concurrency"]
    imported(tmp_path, write(path, json.dumps(result)), gpu="h100")
    run = kvsim.simulate(Scenario.load(tmp_path / "made.toml")).runs[0]
    assert run.requests["prompt_tokens"].tolist() == [20, 10]
    assert [row.prompt_tokens for row in ObservedRun.read(tmp_path / "made.run").rows] == [20, 10]


def test_benchmark_summary_becomes_a_synthetic_load_with_its_means(tmp_path: Path) -> None:
    result = {key: value for key, value in bench_result().items() if not isinstance(value, list)}
    path = write(tmp_path / "bench.json", json.dumps(result | {"request_rate": 2.5}))
    made = imported(tmp_path, path, gpu="h100")
    workload = made.scenario["workload"]
    assert (workload["num_requests"], workload["prompt"]["min_tokens"]) == (2, 14)
    assert workload["arrivals"] == {"kind": "poisson", "rate_per_s": 2.5}
    assert made.recording is not None
    assert not made.recording.served


def test_imported_measurements_are_written_as_an_observed_run(tmp_path: Path) -> None:
    made = imported(tmp_path, SAMPLES["vllm-bench"](tmp_path), gpu="h100")
    assert made.recording is not None
    run = ObservedRun.read(tmp_path / "made.run")
    assert [row.arrival_s for row in run.rows] == [0.0, 0.25]
    assert run.rows[1].last_token_s == 0.75
    assert any("async_scheduling" in line for line in run.assumptions)


def test_time_zone_of_a_log_is_found_in_quarter_hours(tmp_path: Path) -> None:
    # The log's 20:37:00 is 18:37:00 UTC: of the requests' time, in a zone two hours ahead.
    began = datetime(2026, 6, 10, 18, 36, 55, tzinfo=UTC).timestamp()
    result = bench_result() | {"benchmark_start_time_unix": began, "start_times": [5.0, 6.0, 6.5]}
    result["itls"] = [[10.0, 10.0], [1.0, 1.0, 1.0], []]
    bench = write(tmp_path / "bench.json", json.dumps(result))
    made = imported(tmp_path, bench, SAMPLES["vllm-log"](tmp_path), gpu="h100")
    assert made.recording is not None
    assert [tick.t for tick in made.recording.ticks] == [5.0, 15.0]
    assert [tick.kv_cache_pct for tick in made.recording.ticks] == [12.5, 12.5]
    assert made.recording.meta["tick_seconds"] == 10.0


# --- real runs --------------------------------------------------------------------------------


@real
def test_real_run_converted_to_aiperf_has_equal_errors(tmp_path: Path) -> None:
    native = ObservedRun.read(REAL)
    folder = tmp_path / "aiperf"
    write_aiperf_folder(folder, native)
    command = (
        "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 256 --max-num-batched-tokens 2048 "
        "--max-model-len 32768 --async-scheduling"
    )
    made = imported(
        tmp_path, folder, command, REAL / "stream.jsonl", gpu="rtx-4090", engine_version="0.19.0"
    )
    assert made.contradictions == ()
    calibration = find_calibration("rtx4090-llama-3.1-8b", "test")
    theirs = compare_run(REAL, calibration).summary()
    ours = compare_run(tmp_path / "made.run", calibration).summary()
    for same in ("errors", "recorded", "simulated", "steps", "preemptions"):
        assert ours[same] == theirs[same]
    # The recording tells when the engine took each request, AIPerf when it was sent: the offset of
    # the two clocks is found 5 ms apart.
    assert ours["clock_ahead_s"] == pytest.approx(theirs["clock_ahead_s"], abs=0.01)
    reach = {"running_mae": 0.05, "waiting_mae": 0.05, "kv_cache_usage_mae": 0.001}
    for curve, most in reach.items():
        assert ours["curves"][curve] == pytest.approx(theirs["curves"][curve], abs=most)


@real
def test_an_observed_run_imported_is_the_same_run(tmp_path: Path) -> None:
    imported(tmp_path, REAL)
    calibration = find_calibration("rtx4090-llama-3.1-8b", "test")
    theirs = compare_run(REAL, calibration).summary()
    ours = compare_run(tmp_path / "made.run", calibration).summary()
    for same in ("errors", "recorded", "simulated", "steps", "preemptions"):
        assert ours[same] == theirs[same]


@real
@pytest.mark.parametrize(
    ("folder", "settings", "requests"),
    [
        ("residency-h100-qwen3-14b", "runs.json", "w7_agg18.csv.gz"),
        ("blis-training-h100", "runs.json", "llama-2-7b-tp1-general.csv.gz"),
        ("inferencex-h200-gpt-oss-120b", None, "gt_c64.json.gz"),
    ],
)
def test_other_real_runs_are_imported_by_one_command(
    folder: str, settings: str | None, requests: str, tmp_path: Path
) -> None:
    path = REAL.parent / folder
    if not path.is_dir():
        pytest.skip(f"{folder} is not there")
    sources = [path / name for name in (settings, requests) if name is not None]
    given = {} if settings else {"gpu": "h200", "engine_version": "0.22.0"}
    made = imported(tmp_path, *sources, **given)
    scenario = Scenario.load(tmp_path / "made.toml")
    assert scenario.workload is not None
    assert made.recording is not None  # of a benchmark alone, what it measured
    assert bool(made.recording.served) == (settings is not None)
    if settings:
        assert "num_gpu_blocks" in made.scenario["memory"]
        ObservedRun.read(tmp_path / "made.run")


def test_settings_of_several_runs_are_matched_to_the_imported_requests(tmp_path: Path) -> None:
    one = json.loads(SAMPLES["settings-json"](tmp_path).read_text())
    runs = [one | {"file": f"{name}.csv", "num_gpu_blocks": blocks}
            for name, blocks in (("requests", 5000), ("other", 6000))]  # fmt: skip
    path = write(tmp_path / "runs.json", json.dumps(runs))
    made = imported(tmp_path, path, SAMPLES["requests-table"](tmp_path))
    assert made.scenario["memory"] == {"num_gpu_blocks": 5000}
    with pytest.raises(InputError, match="settings of several runs"):
        imported(tmp_path, path)


@real
def test_aiperf_records_alone_give_all_request_times(tmp_path: Path) -> None:
    native = ObservedRun.read(REAL)
    path = tmp_path / "profile_export.jsonl"
    write_records(path, native)
    made = imported(tmp_path, path, gpu="rtx-4090", model="meta-llama/Llama-3.1-8B")
    assert made.recording is not None
    assert [row.arrival_s for row, _ in made.recording.served] == [
        row.arrival_s for row in native.rows
    ]


@pytest.mark.parametrize("model", ["facebook/opt-125m", "openai/gpt-oss-20b"])
def test_command_log_and_metrics_of_one_pool_in_bytes_agree(model: str, tmp_path: Path) -> None:
    """The engine's own blocks and tokens of so many bytes, for layers alike and of two kinds."""
    total, given = 20 * 2**30 + 12345, {"gpu": "h100", "engine_version": "0.22.0"}
    memory = MemoryOptions(kv_cache_bytes=total, engine_version="0.22.0")
    options = ModelOptions.parse({"name": model, "max_model_len": 2048}, "test")
    sized = size(options.build(), named_device("h100"), memory, options, 16, 1024, 8192)
    plan, said = sized.plan, sized.start_up
    sources = {
        "serve.sh": f"vllm serve {model} --max-model-len 2048 --kv-cache-memory-bytes {total}\n",
        "server.log": f"INFO non-default args: {{'model': '{model}', 'max_model_len': 2048}}\n"
        f"INFO GPU KV cache size: {said.kv_cache_size_tokens:,} tokens\n",
        "metrics.txt": 'vllm:cache_config_info{block_size="16",cache_dtype="auto",'
        f'enable_prefix_caching="True",kv_cache_memory_bytes="{total}",'
        f'num_gpu_blocks="{said.num_gpu_blocks}"}} 1.0\n',
    }
    texts = set()
    for name, text in sources.items():
        more = {"model": model, "max_model_len": 2048} if name == "metrics.txt" else {}
        made = imported(tmp_path, write(tmp_path / name, text), **given, **more)
        assert made.contradictions == ()
        texts.add((tmp_path / "made.toml").read_text())
    (text,) = texts
    table = tomllib.loads(text)["memory"]
    if len(plan.groups) == 1:
        assert table == {"num_gpu_blocks": said.num_gpu_blocks}
    else:
        assert table == {"kv_cache_bytes": said.num_gpu_blocks * plan.bytes_per_block}


def test_tiny_max_concurrency_label_limits_max_model_len() -> None:
    labels = {"kv_cache_size_tokens": "64000", "kv_cache_max_concurrency": "5e-324"}
    assert cache_settings(labels, "test")["max_model_len"] == MOST_TOKENS


@pytest.mark.skipif(not LOGS.is_dir(), reason="KVSIM_STARTUP_LOGS_DIR has no logs")
def test_kv_tokens_and_kv_gib_of_real_logs_agree() -> None:
    with (LOGS / "startup-logs.csv").open(newline="") as file:
        told = {row["id"]: row for row in csv.DictReader(file)}
    parts = re.split(r"^## (log\d+) .*$", (LOGS / "excerpts.txt").read_text(), flags=re.MULTILINE)
    errors = {}
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        source = Sniffed(Path(name), text.encode(), text, None, [])
        if not VllmLog.sniff(source):
            continue
        settings = VllmLog.read(source).settings
        if not (settings.model and settings.kv_cache_tokens and settings.available_kv_gib):
            continue
        row = told[name]
        known = {
            "gpu": "h100",
            "tensor_parallel_size": int(row["tp"] or 1),  # some excerpts lack their command
            "engine_version": settings.engine_version or row["engine_version"],
        }
        server = server_of(settings.model_copy(update=known))
        options = ModelOptions.parse(server.model, name)
        token_bytes = options.layout(options.build(offline=True)).bytes_per_token
        block_bytes = server.meta.block_size * token_bytes
        total = server.memory.get("kv_cache_bytes", 0)
        total = total or server.memory["num_gpu_blocks"] * block_bytes
        stages = settings.pipeline_parallel_size or 1
        errors[name] = total / stages / 2**30 / settings.available_kv_gib - 1
        assert not any("more than the" in note for note in server.notes), name
    assert len(errors) > 30
    # The log prints GiB with two digits, and a block is lost at the end.
    off = {name: error for name, error in errors.items() if abs(error) > 1e-3}
    # Two stages: the GiB are the first one's, the blocks the last one's, which keeps the head too.
    assert off.keys() <= {"log025"}
    assert all(abs(error) < 0.02 for error in off.values())


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("-tp 3", "tensor_parallel_size: .*got 3"),
        ("--kv-cache-dtype fp9", "kv_cache_dtype: .*got 'fp9'"),
        ("-tp 4 -dcp 3", "decode_context_parallel_size 3 does not divide"),
    ],
)
def test_option_that_the_model_cannot_have_is_refused_by_name(
    flags: str, named: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=named):
        import_sources([f"vllm serve Qwen/Qwen3-8B {flags}"], {"gpu": "h100"}, tmp_path / "a.toml")


DRAFTED = (
    "vllm serve Qwen/Qwen3-8B --speculative-config "
    """'{"method": "ngram", "num_speculative_tokens": 3}' """
)


def test_imported_host_memory_with_drafts_runs(tmp_path: Path) -> None:
    command = f"{DRAFTED} --kv-offloading-size 40"
    made = import_sources([command], {"gpu": "h100"}, tmp_path / "a.toml")
    assert "host_cache_gib" not in made.scenario["allocator"][0]
    assert [tier["kind"] for tier in made.scenario["tier"]] == ["vllm-offloading"]
    assert made.scenario["scheduler"]["async_scheduling"] is True
    Simulation(Scenario.from_table(made.scenario), [])
    assert not any("kvsim run refuses" in note for note in made.notes)


def test_imported_tier_unsupported_with_drafts_is_left_out(tmp_path: Path) -> None:
    config = '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",'
    config += ' "kv_connector_extra_config": {"cpu_bytes_to_use": 42949672960,'
    config += ' "secondary_tiers": [{"type": "fs", "root_dir": "/kv"}]}}'
    command = f"{DRAFTED} --kv-transfer-config '{config}'"
    made = import_sources([command], {"gpu": "h100"}, tmp_path / "a.toml")
    assert "tier" not in made.scenario
    assert any("host memory behind the device is left out" in note for note in made.notes)
    Simulation(Scenario.from_table(made.scenario), [])


def test_import_notes_settings_that_a_run_would_refuse(tmp_path: Path) -> None:
    command = "vllm serve Qwen/Qwen3.5-9B --no-enable-prefix-caching --kv-offloading-size 8"
    made = import_sources([command], {"gpu": "h100"}, tmp_path / "a.toml")
    (told,) = (note for note in made.notes if note.startswith("kvsim run refuses the scenario"))
    assert "allocator.enable_prefix_caching" in told


def test_import_notes_an_image_newer_than_known_versions(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("docker run vllm/vllm-openai:v0.45.0 --model facebook/opt-125m\n")
    made = import_sources([str(path)], {"gpu": "h100"}, tmp_path / "a.toml")
    assert any("vLLM 0.45.0 is newer than any version" in note for note in made.notes)
    requests = [Request("a", 0, 9, 1)]
    (run,) = kvsim.simulate(made.scenario, requests).runs
    assert any("vLLM 0.45.0 is newer" in note.text for note in run.summary.notes or ())


@formats
def test_num_gpu_blocks_of_a_hybrid_model_are_imported_as_bytes(tmp_path: Path) -> None:
    scrape = FORMATS / "metrics" / "vllm_0.22.0_gpt-oss-120b_h200.txt"
    made = imported(tmp_path, scrape, gpu="h200", engine_version="0.22.0")
    # 18 layers a group, 8 heads of 64 values of 2 bytes, keys and values.
    assert made.scenario["memory"] == {"kv_cache_bytes": 103_690 * 16 * 18 * 2 * 8 * 64 * 2}


@formats
@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("aiperf", {"gpu": "h200", "model": "facebook/opt-125m"}),
        ("blis-tracev2", {"gpu": "h100"}),
        ("guidellm/guidellm_report_v2.json.gz", OPT),
        ("inference-perf/stage_0_lifecycle_metrics.json", OPT),
        ("kv-events/kv_event_base.json", OPT),
        ("metrics/vllm_0.25.1_loaded.txt", OPT),
        ("metrics/after_c64_mtp.txt.gz", {"gpu": "h200"}),
        ("mooncake/aiperf_session_trace_head.jsonl", OPT),
        ("vllm-bench/gt_c4.json", {"gpu": "h200"}),
        ("vllm-bench/bench_serve_v0.25.1.json", {"gpu": "h100"}),
        ("vllm-server-log", {"gpu": "h200"}),
    ],
)
def test_a_real_file_of_each_tool_is_imported(
    path: str, given: dict[str, Any], tmp_path: Path
) -> None:
    results = import_results([str(FORMATS / path)], ImportOptions(given), tmp_path / "made.toml")
    assert len(results) == (2 if path.startswith("guidellm") else 1)  # strategies of one report
    for out, made in results:
        write_imported(made, out)
        Scenario.load(out)
        assert (
            made.as_dict()["sources"][0]["settings"]
            or made.merged.requests
            or made.merged.load
            or made.reads[0].description.measured
        )


def test_import_command_prints_assumptions_and_written_files(tmp_path: Path) -> None:
    source = SAMPLES["vllm-bench"](tmp_path)
    out = tmp_path / "made.toml"
    arguments = ["import", str(source), "--device", "h100", "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "assumed: block_size = 16" in done.output
    assert f"written: {out}" in done.output
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert told["observed_requests"] == 2
    assert told["written"][0] == str(out)


def test_unrecognised_file_is_a_one_line_error(tmp_path: Path) -> None:
    path = write(tmp_path / "notes.txt", "nothing to import")
    with pytest.raises(InputError, match="no format that kvsim imports"):
        imported(tmp_path, path)
    with pytest.raises(InputError, match="no such file"):
        imported(tmp_path, tmp_path / "nowhere")
    with pytest.raises(InputError, match="ends too early"):
        imported(tmp_path, write(tmp_path / "cut.json", '{"benchmarks": [{'))
    log = str(SAMPLES["vllm-log"](tmp_path))
    with pytest.raises(InputError, match=r"\.toml"):
        write_imported(import_sources([log], OPT, tmp_path / "a"), tmp_path / "a")


@pytest.mark.parametrize(
    ("command", "left_out", "kept"),
    [
        (
            "llama-server -m /models/opt-125m.gguf -c 2048 -np 2 -ub 1024 --swa-full"
            " --context-shift --cache-reuse 64 --swa-checkpoints 3 --cache-ram 0"
            " --no-cache-idle-slots",
            ("n_ubatch", "swa_full", "ctx_checkpoints", "cache_idle_slots"),
            ("context_shift", "cache_reuse"),
        ),
        (
            "llama-server -m /models/gemma-3-1b.gguf -c 8192 -np 2 -ub 1024 --context-shift"
            " --cache-reuse 64 --swa-checkpoints 3 --no-cache-idle-slots",
            ("context_shift", "cache_reuse"),
            ("n_ubatch", "ctx_checkpoints", "cache_idle_slots"),
        ),
        (
            "python -m sglang.launch_server --model-path facebook/opt-125m"
            " --mamba-full-memory-ratio 0.5",
            ("mamba_full_memory_ratio",),
            (),
        ),
        (
            "vllm serve facebook/opt-125m --enable-expert-parallel --max-num-seqs 8"
            " --mamba-ssm-cache-dtype float32",
            ("enable_expert_parallel", "mamba_ssm_cache_dtype"),
            ("max_num_seqs",),
        ),
    ],
)
def test_a_flag_that_the_server_does_not_use_is_left_out_with_a_note(
    tmp_path: Path, command: str, left_out: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    (tmp_path / "serve.sh").write_text(command + "\n")
    made = imported(tmp_path, tmp_path / "serve.sh", gpu="h100")
    text = (tmp_path / "made.toml").read_text()
    set_keys = re.findall(r"^(\w+) = ", text, flags=re.MULTILINE)
    assert not {*left_out} & {*set_keys}
    assert {*kept} <= {*set_keys}
    said = "\n".join(made.notes)
    for key in left_out:
        assert f"{key} is left out: " in said
    kvsim.simulate(tomllib.loads(text) | {"workload": WORKLOAD})


WORKLOAD = {
    "kind": "synthetic", "num_requests": 5, "arrivals": "at-once",
    "prompt": {"kind": "fixed", "tokens": 50}, "output": {"kind": "fixed", "tokens": 5},
}  # fmt: skip


SIMPLE = (
    '{"kv_connector": "SimpleCPUOffloadConnector", "kv_role": "kv_both", '
    '"kv_connector_extra_config": {"cpu_bytes_to_use": 8589934592}}'
)


EAGLE = '{"method": "eagle", "num_speculative_tokens": 2}'
NGRAM = '{"method": "ngram", "num_speculative_tokens": 2}'


@pytest.mark.parametrize(
    ("model", "flags", "staged", "assumed"),
    [
        ("llama-3.1-8b", "", True, None),
        ("llama-3.1-8b", " --no-async-scheduling", True, None),
        ("llama-3.1-8b", " --async-scheduling", True, None),
        ("google/gemma-3-12b-it", "", True, None),
        ("Qwen/Qwen3.5-9B", "", True, None),
        ("llama-3.1-8b", f" --speculative-config '{EAGLE}'", True, None),
        ("google/gemma-3-12b-it", f" --speculative-config '{EAGLE}'", True, None),
        ("llama-3.1-8b", f" --speculative-config '{NGRAM}'", True, None),
        (
            *("llama-3.1-8b", f" --kv-offloading-size 8 --speculative-config '{EAGLE}'"),
            *(False, "unlike"),
        ),
        ("llama-3.1-8b", f" --kv-offloading-size 8 --speculative-config '{NGRAM}'", True, None),
        ("llama-3.1-8b", " --kv-offloading-size 8", True, None),
        ("llama-2-13b", " --kv-offloading-size 8 --pipeline-parallel-size 3", False, "unlike"),
        ("llama-3.1-8b", f" --kv-transfer-config '{SIMPLE}'", False, "it has a KV tier"),
    ],
)
def test_pipeline_stages_are_imported_if_a_run_supports_them(
    tmp_path: Path, model: str, flags: str, staged: bool, assumed: str | None
) -> None:
    command = f"vllm serve {model} --pipeline-parallel-size 2 --max-model-len 4096{flags}\n"
    (tmp_path / "serve.sh").write_text(command)
    made = imported(tmp_path, tmp_path / "serve.sh", gpu="h100")
    table = made.scenario["model"]
    assert table.get("pipeline_parallel_size", 1) == (2 if staged else 1)
    assert ("tier" in made.scenario) is ("--kv-" in flags)
    waits = "--no-async" in flags
    assert made.scenario["scheduler"]["async_scheduling"] is not waits
    told = [line for line in made.assumed if "stages" in line or "pipeline_parallel" in line]
    assert [line for line in told if assumed is not None and assumed in line] == told
    assert bool(told) is (assumed is not None)
    kvsim.simulate(made.scenario, [Request("r", 0, 64, 4)])


@pytest.mark.parametrize(("asked", "split"), [({}, True), ({"async_scheduling": True}, False)])
def test_older_vllm_with_pipeline_stages_gets_async_scheduling_off(
    asked: dict[str, bool], split: bool
) -> None:
    settings = ServerSettings(model="llama-3.1-8b", pipeline_parallel_size=2)
    meta: dict[str, Any] = {"vllm_version": "0.24.0", **asked}
    assumed: list[str] = []
    served = served_model(settings, assumed)
    found = staged_over(settings, served, meta, assumed)
    assert found == ({"pipeline_parallel_size": 2} if split else {})
    assert meta["async_scheduling"] is not split
    said = "async_scheduling = false: " if split else "it schedules asynchronously"
    assert said in assumed[-1]
