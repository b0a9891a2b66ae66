"""A simulated run in other tools' formats: read back by their readers, and by kvsim import."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from typer.testing import CliRunner

from kvsim.capacity.options import WAYS, MemoryOptions
from kvsim.cli import app
from kvsim.engine.schedulers import SCHEDULERS
from kvsim.engine.speculation.options import SpeculativeConfig
from kvsim.interchange.exports import EXPORTS
from kvsim.interchange.exports.export import Exported
from kvsim.interchange.imported import Imported, import_sources, write_imported
from kvsim.memory import ALLOCATORS
from kvsim.model import ModelOptions
from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.toml import to_toml
from kvsim.plumbing.units import PS_PER_S
from kvsim.readers.detect import read_sources
from kvsim.results.result import Run
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

TABLES: dict[str, Any] = {
    "seed": 3,
    "model": {"name": "opt-125m", "max_model_len": 2048},
    "device": {"name": "a100-40gb"},
    "memory": {"num_gpu_blocks": 160},
    "allocator": [{"kind": "paged"}, {"kind": "max-buffer"}],
    "scheduler": {"kind": "continuous", "max_num_seqs": 16, "max_num_batched_tokens": 512},
    "step_time": {"kind": "linear", "base_us": 9000, "prefill_token_us": 30},
    "workload": {
        "kind": "synthetic",
        "num_requests": 60,
        "arrivals": {"kind": "poisson", "rate_per_s": 12.0},
        "prompt": {"kind": "uniform", "min_tokens": 50, "max_tokens": 300},
        "output": {"kind": "uniform", "min_tokens": 1, "max_tokens": 200},
    },
}


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return Simulation(Scenario.from_table(TABLES))


@pytest.fixture(scope="module")
def run(simulation: Simulation) -> Run:
    found = simulation.run(simulation.scenario.allocator[0], "paged")
    assert found.summary["preemptions"] > 0  # or the pool is not worth showing
    return found


@pytest.fixture(scope="module")
def exported(simulation: Simulation, run: Run) -> Exported:
    return Exported(simulation.resolved(), run)


def text_of(form: str, exported: Exported, **options: Any) -> str:
    ((_, lines),) = EXPORTS.get(form).parse(options, form).files(exported)
    return "".join(lines)


def write_all(form: str, exported: Exported, folder: Path, **options: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, lines in EXPORTS.get(form).parse(options, form).files(exported):
        (folder / name).write_text("".join(lines))
    return folder


def imported(path: Path, tmp_path: Path) -> Imported:
    found = import_sources([str(path)], {"gpu": "a100-40gb"}, tmp_path / "again.toml")
    write_imported(found, tmp_path / "again.toml")
    return found


# --- metrics ----------------------------------------------------------------------------------


def test_exported_scrape_equals_the_summarys_counts(exported: Exported) -> None:
    families = {each.name: each for each in prometheus(text_of("vllm-metrics", exported))}
    summary = exported.run.summary

    def value(family: str, sample: str) -> float:
        (found,) = [s.value for s in families[family].samples if s.name == sample]
        return float(found)

    assert value("vllm:request_success", "vllm:request_success_total") == 60
    assert value("vllm:num_preemptions", "vllm:num_preemptions_total") == summary["preemptions"]
    outputs = exported.run.requests["output_tokens"].sum()
    assert value("vllm:generation_tokens", "vllm:generation_tokens_total") == outputs
    for name, figure in (
        ("time_to_first_token_seconds", "ttft_s"),
        ("e2e_request_latency_seconds", "e2e_s"),
        ("request_queue_time_seconds", "queue_s"),
    ):
        full = f"vllm:{name}"
        mean = value(full, f"{full}_sum") / value(full, f"{full}_count")
        assert mean == pytest.approx(summary[figure]["mean"])
        buckets = [s.value for s in families[full].samples if s.name == f"{full}_bucket"]
        assert buckets == sorted(buckets)
        assert buckets[-1] == 60


# What vLLM's own dashboards ask for (examples/observability in its repository: prometheus_grafana,
# and dashboards/grafana: performance and query statistics, overview, instances, KV cache), but for
# what only a server has: HTTP, LoRA, connectors, speculation, sleeping.
ASKED = (
    *("e2e_request_latency_seconds_bucket", "e2e_request_latency_seconds_sum"),
    *("e2e_request_latency_seconds_count", "inter_token_latency_seconds_bucket"),
    *("inter_token_latency_seconds_sum", "inter_token_latency_seconds_count"),
    *("time_to_first_token_seconds_bucket", "time_to_first_token_seconds_sum"),
    *("request_time_per_output_token_seconds_bucket", "request_queue_time_seconds_sum"),
    *("request_prefill_time_seconds_sum", "request_decode_time_seconds_sum"),
    *("request_inference_time_seconds_sum", "request_prompt_tokens_bucket"),
    *("request_generation_tokens_bucket", "request_max_num_generation_tokens_sum"),
    *("request_num_preemptions_bucket", "request_prefill_kv_computed_tokens_bucket"),
    *("prompt_tokens_total", "generation_tokens_total", "num_preemptions_total"),
    *("prompt_tokens_cached_total", "prefix_cache_hits_total", "prefix_cache_queries_total"),
    *("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"),
    *('num_requests_waiting_by_reason{reason="capacity"}',),
    *('num_requests_waiting_by_reason{reason="deferred"}',),
    *('request_success_total{finished_reason="length"}',),
    *('prompt_tokens_by_source_total{source="local_cache_hit"}',),
    *("cache_config_info",),
)
CHOSEN_BY = ("job", "instance", "model_name", "engine")  # the dashboards' variables


@pytest.mark.parametrize("asked", ASKED)
def test_export_has_all_metrics_of_vllms_dashboards(asked: str, exported: Exported) -> None:
    name, _, rest = asked.partition("{")
    wanted = dict([rest.rstrip("}").replace('"', "").split("=")]) if rest else {}
    for form in ("vllm-metrics", "openmetrics"):
        text = text_of(form, exported)
        found = [line for line in text.splitlines() if line.startswith(f"vllm:{name}{{")]
        assert any(
            all(f'{key}="{value}"' in line for key, value in wanted.items()) for line in found
        )
        if form == "openmetrics" and name != "cache_config_info":
            assert all(f'{label}="' in found[0] for label in CHOSEN_BY)


def test_exported_inter_token_gaps_sum_to_the_decode_times(exported: Exported) -> None:
    families = {each.name: each for each in prometheus(text_of("vllm-metrics", exported))}
    name = "vllm:inter_token_latency_seconds"
    samples = {s.name: s.value for s in families[name].samples if "le" not in s.labels}
    table = exported.run.requests
    decoding = (table["finish_ps"] - table["first_token_ps"])[table["output_tokens"] > 1]
    assert samples[f"{name}_count"] == (table["output_tokens"] - 1).sum()
    assert samples[f"{name}_sum"] == pytest.approx(decoding.sum() / PS_PER_S)


def test_exported_series_is_valid_openmetrics_and_follows_the_ledger(exported: Exported) -> None:
    text = text_of("openmetrics", exported, every_s=0.5, start_unix_s=1000.0)
    # The reader forgets a histogram's series at its second moment, so each is read by itself.
    lines = text.splitlines(keepends=True)
    stamps = list(dict.fromkeys(line.split()[-1] for line in lines if line[0] != "#"))
    moments = [
        {
            family.name: family
            for family in openmetrics(
                "".join(line for line in lines if line[0] == "#" or line.endswith(f" {stamp}\n"))
            )
        }
        for stamp in stamps
    ]
    samples = [each["vllm:kv_cache_usage_perc"].samples[0] for each in moments]
    memory = exported.run.memory
    pool = exported.run.summary["memory"]["capacity_bytes"] - memory["metadata_bytes"]
    held = sum(memory[f"{name}_bytes"] for name in ("used", "reserved", "overprovisioned"))
    for sample in samples:
        at = (float(sample.timestamp) - 1000.0) * PS_PER_S
        row = memory[(memory["start_ps"] <= at) & (at < memory["end_ps"])]
        expected = float((held / pool)[row.index[-1]]) if len(row) else 0.0
        assert sample.value == pytest.approx(expected)
    assert max(sample.value for sample in samples) > 0.9
    tokens = [each["vllm:generation_tokens"].samples[0].value for each in moments]
    assert tokens == sorted(tokens)
    makespan = exported.run.summary["makespan_s"]
    assert len(tokens) == math.ceil(makespan / 0.5) + 1
    assert moments[-1]["vllm:time_to_first_token_seconds"].type == "histogram"


def test_exported_scrape_is_imported_as_the_same_pool(
    exported: Exported, simulation: Simulation, tmp_path: Path
) -> None:
    folder = write_all("vllm-metrics", exported, tmp_path / "scrape")
    made = imported(folder / "metrics.txt", tmp_path)
    assert made.scenario["memory"] == {"num_gpu_blocks": 160}
    assert made.scenario["model"]["name"] == "facebook/opt-125m"
    assert made.scenario["model"]["max_model_len"] == 2048
    measured = made.reads[0].description.measured
    assert measured["preemptions"] == exported.run.summary["preemptions"]


def test_exported_scrape_of_a_hybrid_model_is_imported_as_the_same_pool(tmp_path: Path) -> None:
    tables = TABLES | {
        "model": {"name": "openai/gpt-oss-20b", "max_model_len": 2048},
        "device": {"name": "h100"},
        "memory": {"kv_cache_bytes": 20 * 2**30},
        "allocator": [{"kind": "paged"}],
        "workload": TABLES["workload"] | {"num_requests": 3},
    }
    simulation = Simulation(Scenario.from_table(tables))
    run = simulation.run(simulation.scenario.allocator[0], "paged")
    exported = Exported(simulation.resolved(), run)
    path = write_all("vllm-metrics", exported, tmp_path / "scrape") / "metrics.txt"
    made = import_sources([str(path)], {"gpu": "h100"}, tmp_path / "again.toml")
    found = made.scenario["memory"]["kv_cache_bytes"]
    assert 20 * 2**30 - 2**20 < found <= 20 * 2**30  # whole blocks


# --- clients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["vllm-bench", "aiperf"])
def test_exported_requests_are_imported_unchanged(
    form: str, exported: Exported, tmp_path: Path
) -> None:
    made = imported(write_all(form, exported, tmp_path / form), tmp_path)
    assert made.recording is not None
    again = ObservedRun.read(tmp_path / "again.run")
    table = exported.run.requests
    zero = table["arrival_ps"].min()
    for column, name in (
        ("arrival_ps", "arrival_s"),
        ("first_token_ps", "first_token_s"),
        ("finish_ps", "last_token_s"),
    ):
        expected = ((table[column] - zero) / PS_PER_S).tolist()
        # A token's gap is a mean, rounded to a nanosecond: two hundred of them.
        found = [getattr(row, name) for row in again.rows]
        assert found == pytest.approx(expected, abs=3e-7)
    assert [row.prompt_tokens for row in again.rows] == table["prompt_tokens"].tolist()
    assert [row.output_tokens for row in again.rows] == table["output_tokens"].tolist()


def test_exported_client_results_equal_the_summary(exported: Exported, tmp_path: Path) -> None:
    write_all("vllm-bench", exported, tmp_path)
    write_all("aiperf", exported, tmp_path)
    for name in ("bench.json", "profile_export_aiperf.json"):
        (read,) = read_sources([str(tmp_path / name)], [])
        for figure in ("ttft", "tpot", "e2e"):
            for stat in ("mean", "p50", "p99"):
                expected = exported.run.summary[f"{figure}_s"][stat]
                assert read.description.measured[f"{figure}_{stat}_s"] == pytest.approx(expected)


def test_exported_aiperf_folder_has_the_engines_gauges(exported: Exported, tmp_path: Path) -> None:
    made = imported(write_all("aiperf", exported, tmp_path / "aiperf"), tmp_path)
    assert made.scenario["memory"] == {"num_gpu_blocks": 160}
    assert made.recording is not None
    assert max(tick.kv_cache_pct or 0 for tick in made.recording.ticks) > 90
    assert max(tick.running or 0 for tick in made.recording.ticks) > 1


# --- a trace ----------------------------------------------------------------------------------


def test_perfetto_tracks_never_hold_two_requests_at_once(exported: Exported) -> None:
    events = json.loads(text_of("perfetto", exported))["traceEvents"]
    requests = [e for e in events if e["ph"] == "X" and "args" in e]
    assert len(requests) == 60
    lanes: dict[int, list[tuple[float, float]]] = {}
    for event in requests:
        lanes.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        spans.sort()
        ends = [end for _, end in spans]
        assert all(begin >= end for (begin, _), end in zip(spans[1:], ends[:-1], strict=True))
    phases = [e for e in events if e["ph"] == "X" and "args" not in e]
    for phase in phases:  # each inside a request of its lane, to the microsecond
        assert any(
            begin <= phase["ts"] and phase["ts"] + phase["dur"] <= end
            for begin, end in lanes[phase["tid"]]
        )
    assert all(type(e[key]) is int for e in requests + phases for key in ("ts", "dur"))
    named = {e["tid"] for e in events if e["name"] == "thread_name"}
    assert named == set(lanes)
    memory = [e for e in events if e["name"] == "KV memory, bytes"]
    capacity = exported.run.summary["memory"]["capacity_bytes"]
    assert len(memory) == len(exported.run.memory)
    assert all(sum(e["args"].values()) == capacity for e in memory)


# --- a server ---------------------------------------------------------------------------------


def test_exported_command_line_imports_as_the_same_scenario(
    exported: Exported, simulation: Simulation, tmp_path: Path
) -> None:
    folder = write_all("vllm-serve", exported, tmp_path / "serve")
    made = imported(folder / "serve.sh", tmp_path)
    assert made.scenario["memory"] == {"num_gpu_blocks": 160}
    again = Scenario.load(tmp_path / "again.toml")
    said = {"scheduler_reserve_full_isl": True}  # what not given means
    assert again.scheduler == simulation.scenario.scheduler.model_copy(update=said)
    assert again.allocator[0] == simulation.scenario.allocator[0]
    assert again.model.max_model_len == 2048
    assert again.model.name == "facebook/opt-125m"


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    scheduler=st.fixed_dictionaries(
        {},
        optional={
            "max_num_seqs": st.integers(1, 1024),
            "max_num_batched_tokens": st.integers(2048, 16384),
            "long_prefill_token_threshold": st.integers(1, 4096),
            "policy": st.sampled_from(["fcfs", "priority"]),
            "enable_chunked_prefill": st.booleans(),
            "async_scheduling": st.booleans(),
            "scheduler_reserve_full_isl": st.booleans(),
        },
    ),
    allocator=st.fixed_dictionaries(
        {"block_size": st.sampled_from([16, 32, 64]), "enable_prefix_caching": st.booleans()},
        optional={"watermark": st.sampled_from([0.01, 0.25])},
    ),
    memory=st.sampled_from([{"num_gpu_blocks": 160}, {"gpu_memory_utilization": 0.8}]),
    tensor_parallel_size=st.sampled_from([1, 2, 4]),
)
def test_exported_flags_are_imported_as_the_same_options(
    scheduler: dict[str, Any],
    allocator: dict[str, Any],
    memory: dict[str, Any],
    tensor_parallel_size: int,
    run: Run,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    model = TABLES["model"] | {"tensor_parallel_size": tensor_parallel_size}
    tables = TABLES | {
        "model": model,
        "memory": memory,
        "allocator": [{"kind": "paged"} | allocator],
    }
    tables |= {"scheduler": {"kind": "continuous"} | scheduler}
    resolved = Simulation(Scenario.from_table(tables)).resolved()
    folder = tmp_path_factory.mktemp("serve")
    path = write_all("vllm-serve", Exported(resolved, run), folder) / "serve.sh"
    imported(path, folder)
    again = Scenario.load(folder / "again.toml")
    before = Scenario.from_table(tables)
    said = {"scheduler_reserve_full_isl": scheduler.get("scheduler_reserve_full_isl", True)}
    assert again.scheduler == before.scheduler.model_copy(update=said)
    assert again.allocator[0] == before.allocator[0]
    assert again.memory.gpu_memory_utilization == before.memory.gpu_memory_utilization
    assert again.memory.num_gpu_blocks == before.memory.num_gpu_blocks
    assert again.model.tensor_parallel_size == tensor_parallel_size


def test_exported_command_lists_gpus_of_unequal_stages_first(tmp_path: Path) -> None:
    model = {**TABLES["model"], "pipeline_parallel_size": 2, "pp_layer_partition": "5,7"}
    device = {"name": "l40s", "stage": [{"number": 2, "name": "l4"}]}
    made = {**TABLES, "model": model, "device": device, "step_time": {"kind": "roofline"}}
    staged = Simulation(Scenario.from_table(made))
    run = staged.run(staged.scenario.allocator[0], "paged")
    written = write_all("vllm-serve", Exported(staged.resolved(), run), tmp_path / "s")
    lines = (written / "serve.sh").read_text().splitlines()
    assert lines[:3] == [
        "# GPUs in the order of CUDA_VISIBLE_DEVICES, 1 a stage: l40s",
        "# but in stage 2: l4",
        "export VLLM_PP_LAYER_PARTITION=5,7",
    ]
    assert "--pipeline-parallel-size 2" in " ".join(lines)


SHARED = {
    "tensor_parallel_size": 4,
    "data_parallel_size": 2,
    "decode_context_parallel_size": 2,
    "enable_expert_parallel": True,
}


def test_parallel_sizes_become_flags_of_the_exported_command(tmp_path: Path) -> None:
    model = {"name": "deepseek-v2-lite", "max_model_len": 4096, **SHARED}
    made = {**TABLES, "model": model, "step_time": {"kind": "roofline"}}
    made["allocator"] = [{"kind": "paged"}]
    shared = Simulation(Scenario.from_table(made))
    run = shared.run(shared.scenario.allocator[0], "paged")
    written = write_all("vllm-serve", Exported(shared.resolved(), run), tmp_path / "s")
    told = (written / "serve.sh").read_text().replace("\\\n", " ").split()
    for flag, size in (("tensor", 4), ("data", 2), ("decode-context", 2)):
        assert told[told.index(f"--{flag}-parallel-size") + 1] == str(size)
    assert "--enable-expert-parallel" in told


@pytest.mark.parametrize(
    ("table", "changes", "where"),
    [
        ("scheduler", {"victim": {"kind": "least-computed"}}, "scheduler.victim"),
        ("scheduler", {"preemption_mode": "swap"}, "scheduler.preemption_mode"),
        ("allocator", {"sharing": "copy-on-write"}, "allocator.sharing"),
    ],
)
def test_setting_without_a_vllm_flag_is_refused(
    table: str, changes: dict[str, Any], where: str, exported: Exported
) -> None:
    changed = dict(exported.scenario)
    if table == "scheduler":
        changed[table] = {**changed[table], **changes}
    else:
        changed[table] = [{**changed[table][0], **changes}]
    with pytest.raises(InputError, match=f"{where}: vLLM has no flag for it"):
        text_of("vllm-serve", Exported(changed, exported.run))


# A value other than the default for each key of the tables that describe a server.
SET: dict[str, dict[str, Any]] = {
    "model": {
        "dtype": "float32", "quantization": "int4", "weight_bytes_per_param": 0.5,
        "kv_cache_dtype": "fp8", "kv_scale_group_size": 64, "kv_scale_bytes": 2,
        "mamba_ssm_cache_dtype": "float32", "language_model_only": True, "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2, "pp_layer_partition": "5,7", "data_parallel_size": 2,
        "enable_expert_parallel": True, "decode_context_parallel_size": 2, "max_model_len": 1024,
        "name": "opt-350m",
    },
    "memory": {
        "weights_gib": 1.0, "activation_gib": 1.0, "other_gib": 1.0, "engine_version": "0.27",
        "enforce_eager": True, "max_cudagraph_capture_size": 8, "enable_prefix_caching": False,
        "drafter": "opt-125m", "num_speculative_tokens": 3, "max_loras": 5, "max_lora_rank": 64,
        "flashinfer_sampler": False, "first_start": True, "num_gpu_blocks": 99,
    },
    "allocator": {
        "block_size": 32, "enable_prefix_caching": False, "watermark": 0.1,
        "sharing": "copy-on-write", "host_cache_gib": 4.0, "eviction_policy": {"kind": "fifo"},
        "disable_hybrid_kv_cache_manager": True, "prefix_cache_retention_interval": 64,
        "prefix_match_unit": 8, "prefill_checkpoint_alignment": 64,
    },
    "scheduler": {
        "max_num_seqs": 7, "max_num_batched_tokens": 99, "enable_chunked_prefill": False,
        "long_prefill_token_threshold": 9, "policy": "priority",
        "scheduler_reserve_full_isl": False, "async_scheduling": True, "max_cpu_loras": 9,
        "max_tokens_per_mm_item": 9, "max_num_encoder_input_tokens": 9, "encoder_cache_size": 9,
        "disable_chunked_mm_input": True, "limit_mm_per_prompt": 3, "encoder_us_per_token": 2.0,
        "lora_load_ms": 15.0, "semantics": "vllm-0.27", "victim": {"kind": "least-computed"},
        "preemption_mode": "swap",
    },
    "speculative_config": {
        "method": "ngram", "num_speculative_tokens": 5, "model": "qwen3-0.6b",
        "hf_config": "/drafter/config.json", "disable_lookahead_block_hashes": True,
        "acceptance_rate": 0.5, "synthetic_acceptance_rates": [0.5, 0.4],
        "synthetic_acceptance_length": 2.0, "acceptance_pattern": [1], "draft_us": 9.0,
    },
}  # fmt: skip
# Of a pool that is given in another way, as bytes; of the swap space of what is refused; of slots
# that are those of [memory].
ELSEWHERE = {
    "model": {"hf_config"},
    "memory": set(WAYS) - {"num_gpu_blocks"} | {"mamba_full_memory_ratio"},
    "allocator": {"label"},
    "scheduler": {"swap_space_gib", "swap_latency_us", "max_loras"},
    "speculative_config": set(),
}
OPTIONS: dict[str, type[Options]] = {
    "model": ModelOptions,
    "memory": MemoryOptions,
    "allocator": ALLOCATORS.get("paged"),
    "scheduler": SCHEDULERS.get("continuous"),
    "speculative_config": SpeculativeConfig,
}


@pytest.mark.parametrize("table", OPTIONS)
def test_every_scenario_key_changes_the_exported_command_or_a_note(
    table: str, exported: Exported
) -> None:
    assert SET[table].keys() | ELSEWHERE[table] == OPTIONS[table].model_fields.keys()
    drafts = {"method": "eagle", "num_speculative_tokens": 2}
    loras = {**exported.scenario["memory"], "max_loras": 4}
    base = {**exported.scenario, "memory": loras, "speculative_config": drafts}

    def written(changes: dict[str, Any]) -> str:
        old = base["allocator"][0] if table == "allocator" else base[table]
        new: Any = {**old, **changes}
        parts = base | {table: [new] if table == "allocator" else new}
        try:
            return text_of("vllm-serve", Exported(parts, exported.run))
        except InputError as refused:
            return str(refused.where)

    before = written({})
    for key, value in SET[table].items():
        found = written({key: value})
        assert found != before, key
        assert found.startswith("#") or "vllm serve" in found or found == f"{table}.{key}"


def test_lora_settings_survive_export_and_import(tmp_path: Path) -> None:
    tables = {**TABLES, "memory": {"max_loras": 4, "max_lora_rank": 64}}
    tables["allocator"] = [{"kind": "paged"}]
    tables["scheduler"] = {"kind": "continuous", "max_cpu_loras": 8, "lora_load_ms": 15}
    del tables["workload"]  # a server needs none
    path = tmp_path / "lora.toml"
    path.write_text(to_toml(tables))
    out = tmp_path / "serve.sh"
    said = CliRunner().invoke(app, ["export", str(path), "--to", "vllm-serve", "--out", str(out)])
    assert "note: no flag sets scheduler.lora_load_ms = 15.0" in said.output
    again = imported(out, tmp_path).scenario
    assert again["memory"]["max_loras"] == again["scheduler"]["max_loras"] == 4
    assert again["memory"]["max_lora_rank"] == 64
    assert again["scheduler"]["max_cpu_loras"] == 8


def test_exported_replica_has_the_flags_of_its_fleet_group(tmp_path: Path) -> None:
    group = {"replicas": 2, "model": {"quantization": "fp8"}, "device": {"name": "l4"}}
    group["scheduler"] = {"kind": "continuous", "max_num_seqs": 32}
    tables = {**TABLES, "allocator": [{"kind": "paged"}], "step_time": {"kind": "roofline"}}
    tables["fleet"] = {"group": [{"replicas": 1}, group]}
    path = tmp_path / "fleet.toml"
    path.write_text(to_toml(tables))

    def written(*more: str) -> str:
        out = tmp_path / "serve.sh"
        asked = ["export", str(path), "--to", "vllm-serve", "--out", str(out), *more]
        said = CliRunner().invoke(app, asked)
        return str(said.exception) if said.exit_code else out.read_text()

    assert "the replicas differ" in written()
    assert "no replica or allocator" in written("--allocator", "paged #3")
    first, second = written("--allocator", "paged #0"), written("--allocator", "paged #2")
    assert "--max-num-seqs 16" in first
    assert "--quantization" not in first
    assert "--max-num-seqs 32" in second
    assert "--quantization fp8" in second


def test_equal_replicas_are_exported_as_one_vllm_command(tmp_path: Path) -> None:
    tables = {**TABLES, "allocator": [{"kind": "paged"}]}
    tables["fleet"] = {"replicas": 4, "router": {"kind": "vllm-dp"}, "cells": 2}
    path, out = tmp_path / "fleet.toml", tmp_path / "serve.sh"
    path.write_text(to_toml(tables))
    CliRunner().invoke(app, ["export", str(path), "--to", "vllm-serve", "--out", str(out)])
    assert "--data-parallel-size 2" in out.read_text()


def test_export_notes_a_missing_drafter_head(exported: Exported) -> None:
    drafts = {"method": "eagle3", "num_speculative_tokens": 2, "acceptance_rate": 0.7}
    text = text_of(
        "vllm-serve", Exported({**exported.scenario, "speculative_config": drafts}, exported.run)
    )
    assert "# vLLM needs the eagle3 head" in text
    assert "# no flag sets speculative_config.acceptance_rate = 0.7" in text


def test_speculative_config_and_retention_become_flags(exported: Exported) -> None:
    kept = {**exported.scenario["allocator"][0], "prefix_cache_retention_interval": "none"}
    drafting = {"method": "mtp", "num_speculative_tokens": 2, "acceptance_rate": 0.7}
    changed = {**exported.scenario, "allocator": [kept], "speculative_config": drafting}
    text = text_of("vllm-serve", Exported(changed, exported.run))
    assert "--prefix-cache-retention-interval None" in text
    assert """--speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'""" in text


def test_export_of_an_allocator_without_an_engine_is_refused(simulation: Simulation) -> None:
    run = simulation.run(simulation.scenario.allocator[1], "max-buffer")
    exported = Exported(simulation.resolved(), run)
    with pytest.raises(InputError, match=r"no such allocator; got max-buffer; --allocator 'paged'"):
        text_of("vllm-serve", exported)


# --- the command ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", tuple(EXPORTS))
def test_every_export_format_writes_a_file_or_names_a_reason(form: str, tmp_path: Path) -> None:
    scenario = tmp_path / "small.toml"
    workload = TABLES["workload"] | {"num_requests": 5}
    scenario.write_text(to_toml(TABLES | {"workload": workload}))
    for label in ("paged", "max-buffer"):
        out = tmp_path / label
        arguments = ["export", str(scenario), "--to", form, "--out", str(out)]
        done = CliRunner().invoke(app, [*arguments, "--allocator", label])
        assert out.exists() == (done.exception is None)
        assert done.exception is None or isinstance(done.exception, InputError)
    assert (tmp_path / "paged").exists()


def test_stored_result_exports_the_same_files_as_its_run(tmp_path: Path) -> None:
    scenario = tmp_path / "small.toml"
    scenario.write_text(to_toml(TABLES | {"workload": TABLES["workload"] | {"num_requests": 5}}))
    runner = CliRunner()
    assert runner.invoke(app, ["run", str(scenario), "--out", str(tmp_path / "r")]).exit_code == 0
    for source, out in ((scenario, "a.json"), (tmp_path / "r", "b.json")):
        arguments = ["export", str(source), "--to", "perfetto", "--out", str(tmp_path / out)]
        assert runner.invoke(app, arguments).exit_code == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--to", "perfeto"], "did you mean 'perfetto'"),
        (["--to", "perfetto", "--every", "2"], "every_s"),
        (["--to", "openmetrics", "--every", "0"], "too small; got 0.0; limit more than 0"),
        (["--to", "perfetto", "--at", "2"], "of the whole run"),
        (["--every", "2"], "every_s"),
        (["--to", "perfetto", "--allocator", "pagd"], "no such allocator"),
    ],
)
def test_export_options_of_another_format_are_refused(
    arguments: list[str], fault: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match=fault):
        CliRunner().invoke(
            app, ["export", "chat", "--out", str(out), *arguments], catch_exceptions=False
        )
    assert not out.exists()


def test_exported_metrics_label_each_replica_of_a_fleet(tmp_path: Path) -> None:
    scenario = tmp_path / "fleet.toml"
    scenario.write_text(to_toml({**TABLES, "allocator": "paged", "fleet": {"replicas": 3}}))
    done = {}
    for form, label in (("vllm-metrics", "engine"), ("openmetrics", "instance")):
        out = tmp_path / form
        told = CliRunner().invoke(app, ["export", str(scenario), "--to", form, "--out", str(out)])
        assert told.exit_code == 0, told.output
        text = out.read_text()
        assert len(re.findall("^# TYPE vllm:num_requests_running", text, re.MULTILINE)) == 1
        done[form] = set(re.findall(f'{label}="([^"]*)"', text))
    assert done == {
        "vllm-metrics": {"0", "1", "2"},
        "openmetrics": {"kvsim:0", "kvsim:1", "kvsim:2"},
    }
    families = {each.name: each for each in prometheus((tmp_path / "vllm-metrics").read_text())}
    answers = [sample.value for sample in families["vllm:request_success"].samples]
    assert answers == [20, 20, 20]
    told = CliRunner().invoke(app, ["export", str(scenario), "--to", "perfetto", "--out", "x"])
    assert isinstance(told.exception, InputError)
    assert "paged #0" in str(told.exception)


def test_tier_hits_and_copies_survive_export_and_import(tmp_path: Path) -> None:
    tier = {"kind": "vllm-offloading", "kv_offloading_size": 1, "load_gb_per_s": 4.0}
    chats: dict[str, Any] = {
        "kind": "sessions",
        "num_sessions": 8,
        "arrivals": {"kind": "poisson", "rate_per_s": 4.0},
        "turns": {"kind": "fixed", "tokens": 4},
        "prompt": {"kind": "fixed", "tokens": 200},
        "output": {"kind": "fixed", "tokens": 20},
        "max_context": "max_model_len",
        "think": {"kind": "fixed", "seconds": 1.0},
    }
    tables = TABLES | {"allocator": "paged", "tier": [tier], "workload": chats}
    simulation = Simulation(Scenario.from_table(tables))
    run = simulation.run(simulation.scenario.allocator[0], "paged")
    cache, offloading = run.summary.prefix_cache, run.summary.offloading
    assert cache is not None
    assert offloading is not None
    assert cache.host_hit_tokens
    exported = Exported(simulation.resolved(), run)
    folder = write_all("vllm-metrics", exported, tmp_path / "scrape")
    (read,) = read_sources([str(folder / "metrics.txt")], [])
    measured, host = read.description.measured, offloading.tiers[0]
    assert measured["tier_hit_tokens"] == cache.host_hit_tokens
    assert measured["prefix_cache_hit_tokens"] == cache.hit_tokens - cache.host_hit_tokens
    assert measured["tier_loaded_bytes"] == host.loaded_bytes
    assert measured["tier_store_busy_s"] == pytest.approx(host.store_busy_s)
    assert read.description.settings.load_gb_per_s == pytest.approx(4.0)
    assert "external_prefix_cache_hits" in text_of("openmetrics", exported)
