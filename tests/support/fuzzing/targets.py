"""Everything kvsim reads: a sound file of each kind, and what is done with one that may not be."""

import io
import json
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_bytes
from support.fuzzing.sound import (
    CASE,
    DRAFTED,
    JOURNAL,
    LOG,
    OF_SGLANG,
    ROWS,
    SAMPLES_CSV,
    SAMPLES_JSONL,
    SCENARIO,
    SESSION,
    SESSIONS,
    SETUP,
    STEPS,
    TRACES,
    VLLM_META,
)
from support.fuzzing.structure import recipes

ROOT = Path(__file__).parents[3]


class Target(NamedTuple):
    """One file that kvsim reads.

    kind: how it is spoilt. name: the file's, within a folder that `prepare` fills with what stands
    beside it. seeds: sound contents. read: raises InputError, or nothing.
    """

    kind: str
    name: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[Path], object]
    prepare: Callable[[Path], object] = lambda folder: None


def _read_trace(format: str | None) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        from kvsim.workload.statistics import arrival_statistics, length_statistics
        from kvsim.workload.traces.reader import read_trace

        trace = read_trace(path, format=format, drop_failed=True, sort=True)
        arrival_statistics(trace)
        length_statistics([row.prompt_tokens for row in trace.rows])
        length_statistics([row.output_tokens for row in trace.rows])
        _converted(trace, path)
        _replayed(path, format)

    return read


def _converted(trace: Any, path: Path) -> None:
    """Every format that can hold the trace writes what its own reader takes."""
    from kvsim.plumbing.writing import write_lines
    from kvsim.workload import convert
    from kvsim.workload.traces import TRACE_FORMATS
    from kvsim.workload.traces.reader import read_trace

    for name in TRACE_FORMATS:
        try:
            lines, _ = convert.convert(trace, name)
        except InputError:
            continue
        beside = path.with_name(f"converted-{name}")
        write_lines(beside, lines)
        block = TRACE_FORMATS.get(name).model_fields.get("hash_block_tokens")
        size = trace.hash_block_tokens if name == trace.format and block else None
        try:
            again = read_trace(beside, format=name, hash_block_tokens=size)
        except InputError as error:
            raise AssertionError(f"{name} writes what it does not read: {error}") from error
        assert len(again.rows) == len(trace.rows)


def _replayed(path: Path, format: str | None) -> None:
    from kvsim.workload.trace import TraceReplay

    table = {"path": path, "format": format, "drop_failed": True, "sort": True, "clip_to": 1000}
    TraceReplay.parse(table, "workload").generate(0, base=Path(), max_model_len=2048)


def _config(path: Path) -> None:
    from kvsim.model import Model

    model = Model.from_hf(path)
    for size in (1, 2):
        model.kv_layout("auto", size)
        model.weight_bytes(size)
    assert model.attention_flops([1, 100]) >= 0


@cache
def _configs() -> list[bytes]:
    llama = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "head_dim": 16,
        "max_position_embeddings": 512, "torch_dtype": "bfloat16", "rope_scaling": {
            "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256},
        "tie_word_embeddings": False, "sliding_window": None,
    }  # fmt: skip
    gemma = llama | {
        "model_type": "gemma3_text", "sliding_window": 64, "sliding_window_pattern": 2,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    }  # fmt: skip
    experts = llama | {
        "model_type": "deepseek_v2", "kv_lora_rank": 32, "q_lora_rank": 16, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "mlp_only_layers": [0], "decoder_sparse_step": 1,
    }  # fmt: skip
    jamba = llama | {
        "model_type": "jamba", "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4,
        "num_experts_per_tok": 2, "mamba_d_state": 4, "mamba_dt_rank": "auto", "mamba_expand": 2,
        "expert_layer_period": 2, "expert_layer_offset": 1,
    }  # fmt: skip
    qwen = llama | {
        "model_type": "qwen3_next", "full_attention_interval": 2, "linear_conv_kernel_dim": 4,
        "linear_num_value_heads": 4, "linear_value_head_dim": 8, "linear_key_head_dim": 8,
        "linear_num_key_heads": 2, "attn_layer_indices": [0],
    }  # fmt: skip
    quantized = llama | {
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    }  # fmt: skip
    grouped = llama | {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"weights": {"num_bits": 8, "group_size": 64}}},
        }
    }
    inner = {"architectures": ["X"], "text_config": llama, "torch_dtype": "float16"}
    every = (llama, gemma, experts, jamba, qwen, quantized, grouped, inner)
    return [json.dumps(config).encode() for config in every]


def _calibration(path: Path) -> None:
    from kvsim.step import Chunk, StepShape
    from kvsim.step_time.calibrated.file import read_calibration
    from kvsim.step_time.calibrated.form import CalibratedTime

    time = CalibratedTime(read_calibration(path))
    shapes = (
        StepShape((), 3, 300, 120),
        StepShape((Chunk(100, 0),), 0, 0),
        StepShape((Chunk(9000, 5),), 2, 50),
    )
    for shape in shapes:
        assert time.step_ps(shape) > 0
        time.outside_domain(shape)
    run = time.decode_run(3, 300, 120)
    assert run.first_ps > 0
    assert run.growth_ps >= 0


@cache
def _calibrations() -> list[bytes]:
    shipped = ("rtx4090-llama-3.1-8b", "cpu-small-llama-contiguous")
    seeds = []
    for name in shipped:
        table = json.loads((ROOT / "calibration" / f"{name}.json").read_text())
        rows = table["samples"].get("embedded", [])
        table["samples"]["embedded"] = rows[:2]
        seeds.append(json.dumps(table).encode())
    return seeds


def _samples(path: Path) -> None:
    from kvsim.step_time.calibrated.samples import read_samples
    from kvsim.step_time.calibrated.terms import Steps

    Steps.of(read_samples(path).samples())


def _schedule(path: Path) -> None:
    from evidence.schedule.case import read_expectation
    from evidence.schedule.engines import read_case
    from evidence.schedule.replay import simulate_rows
    from evidence.schedule.verdict import compare

    case, recorded = read_case(path), read_expectation(path)
    # Prompts in chunks of a token or two would take a step for each.
    crumbs = 0 < getattr(case.engine, "chunked_prefill_size", 0) < 16
    if sum(request.out * request.n for request in case.requests) < 2000 and not crumbs:
        compare(case.name, recorded, simulate_rows(case)).text()


def _expectation(path: Path) -> None:
    from evidence.schedule.case import read_expectation
    from evidence.schedule.verdict import compare

    recorded = read_expectation(path.with_name("case.json"))
    compare("case", recorded, [{"step": 0, "t0": 0}]).text()


def _beside_case(folder: Path) -> None:
    (folder / "case.json").write_text(json.dumps(CASE))
    (folder / "case.expected.json").write_text(json.dumps(ROWS))


def _recorded(folder: str, *names: str) -> Callable[[], list[bytes]]:
    """Cases that were recorded of engines."""
    place = ROOT / "tests" / "evidence" / "schedule" / folder
    return lambda: [(place / f"{name}.json").read_bytes() for name in names]


def _scenario(path: Path) -> None:
    """Read and made ready; what it asks for is made only where it is small."""
    from kvsim.plumbing.toml import to_toml
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation

    scenario = Scenario.load(path)
    count = getattr(scenario.workload, "num_requests", 0) or getattr(
        scenario.workload, "num_sessions", 0
    )
    if count <= 1000:
        to_toml(Simulation(scenario).resolved())


def _structure(path: Path) -> None:
    """Read, made ready and, where it is small, run."""
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation

    scenario = Scenario.load(path)
    count = getattr(scenario.workload, "num_requests", 0) + 8 * getattr(
        scenario.workload, "num_sessions", 0
    )
    said = path.read_text()
    if count <= 50 and not re.search(r"1000000|e1\d", said):  # of turns or items: long, no fault
        simulation = Simulation(scenario)
        lengths = [each.prompt_tokens + each.output_tokens for each in simulation.stream.requests]
        if len(lengths) <= 100 and sum(lengths) < 100_000:
            simulation.result()


@cache
def _result_files() -> dict[str, bytes]:
    """The five files of a small result."""
    import tempfile

    import kvsim
    from kvsim.results import store

    table = {
        "model": {"name": "opt-125m"},
        "device": {"name": "a100-40gb"},
        "memory": {"kv_cache_tokens": 1024},
        "allocator": [{"kind": "paged"}, {"kind": "max-buffer"}],
        "workload": {
            "kind": "synthetic",
            "num_requests": 4,
            "arrivals": {"kind": "poisson", "rate_per_s": 5.0},
            "prompt": {"kind": "uniform", "max_tokens": 200},
            "output": {"kind": "fixed", "tokens": 5},
        },
    }
    with tempfile.TemporaryDirectory() as name:
        store.write(Path(name), kvsim.simulate(table), "<html>")
        return {path.name: path.read_bytes() for path in Path(name).iterdir()}


def _beside_result(folder: Path) -> None:
    for name, content in _result_files().items():
        (folder / name).write_bytes(content)


def _result(path: Path) -> None:
    from rich.console import Console

    from kvsim.report.differences import differences
    from kvsim.report.terminal import print_result
    from kvsim.results import store

    result = store.read(path.parent)
    for run in result.runs:
        assert len(run.requests.columns)
        assert len(run.memory.columns)
    print_result(result, Console(file=io.StringIO(), width=80))
    differences([result.scenario, {"seed": 1}])


@cache
def _observed_files() -> dict[str, bytes]:
    folder = ROOT / "reports" / "observed" / "paged"
    heads = {"requests.csv": 4, "stream.jsonl": 3, "timeseries.csv": 4, "steps.csv": 4}
    files = {"meta.json": (folder / "meta.json").read_bytes()}
    for name, lines in heads.items():
        files[name] = b"".join((folder / name).read_bytes().splitlines(keepends=True)[:lines])
    return files


def _beside_observed(folder: Path) -> None:
    for name, content in _observed_files().items():
        (folder / name).write_bytes(content)


def _observed(path: Path) -> None:
    from kvsim.observed.folder import ObservedRun

    run = ObservedRun.read(path.parent)
    run.meta.facts()
    run.meta.model_identity()
    run.meta.replica_spec().build()


def _snapshots() -> list[bytes]:
    import pickle

    block = {"size": 512, "state": "active_allocated", "requested_size": 500}
    free = {"size": 1536, "state": "inactive"}
    segment = {"address": 4096, "total_size": 2048, "device": 0, "blocks": [block, free]}
    entry = {"action": "alloc", "size": 500, "addr": 4096, "time_us": 5}
    data = {"segments": [segment], "device_traces": [[entry]]}
    return [pickle.dumps(data, protocol) for protocol in (0, 2, 4)]


def _snapshot(path: Path) -> None:
    from kvsim.interchange.torch_snapshot.reader import ledgers, read_snapshot

    ledgers(read_snapshot(path))


def _lengths(path: Path) -> None:
    from kvsim.workload.lengths import LENGTHS
    from kvsim.workload.random import generator

    table = {"kind": "empirical", "path": path, "column": "tokens"}
    drawn = LENGTHS.parse(table, "lengths").draw(5, generator(0, "x"), Path())
    assert (drawn >= 1).all()


def _imported(path: Path) -> None:
    from kvsim.interchange.imported import import_sources, write_imported

    out = path.with_name("made.toml")
    given = {"gpu": "h100", "model": "facebook/opt-125m"}
    write_imported(import_sources([str(path)], given, out), out)


@cache
def _sample(name: str) -> tuple[str, bytes]:
    """The name and the content of the file that is the sample of a format."""
    import tempfile

    from support.import_samples import SAMPLES

    with tempfile.TemporaryDirectory() as folder:
        path = SAMPLES[name](Path(folder))
        if path.is_dir():
            path = max(path.rglob("*"), key=lambda inner: inner.stat().st_size * inner.is_file())
        return path.name, path.read_bytes()


def _import_targets() -> dict[str, "Target"]:
    from kvsim.readers.detect import readers
    from kvsim.readers.reader import Source

    found = {}
    for name in readers(Source):
        file, content = _sample(name)
        first, jsons = content.lstrip()[:1], (".json", ".jsonl")
        kind = "csv" if file.endswith(".csv") else "binary"
        if first in (b"{", b"[") or file.endswith(jsons):
            kind = "jsonl" if content.strip().count(b"\n{") else "json"
        found[f"import-{name}"] = Target(
            kind, file, lambda name=name: [_sample(name)[1]], _imported
        )
    return found


def _trials(path: Path) -> None:
    from kvsim.readers.detect import read_runs

    for _, trial in read_runs([path.parent]):
        assert trial.requests
        assert all(math.isfinite(value) for value in trial.recorded.values())


@cache
def _collection(name: str) -> dict[str, bytes]:
    """The files of a collection's sample, unpacked."""
    import tempfile

    from support.collection_samples import MAKERS

    with tempfile.TemporaryDirectory() as folder:
        MAKERS[name](Path(folder))
        return {path.name: read_bytes(path) for path in sorted(Path(folder).iterdir())}


def _collection_targets() -> dict[str, "Target"]:
    from support.collection_samples import MAKERS

    return {
        f"collection-{name}-{file.partition('.')[0]}": Target(
            "json" if ".json" in file else "csv",
            file,
            lambda name=name, file=file: [_collection(name)[file]],
            _trials,
            MAKERS[name],
        )
        for name in MAKERS
        for file in _collection(name)
    }


def _logs(path: Path) -> None:
    from evidence.logs.row import read_rows

    read_rows(path)


def _log_rows() -> list[bytes]:
    from evidence.logs.row import COLUMNS

    cells = dict.fromkeys(COLUMNS, "") | {
        "id": "a", "engine_version": "0.10.2", "model": "meta-llama/Llama-3.1-8B", "gpu": "H100",
        "tp": "1", "max_model_len": "8192", "gpu_memory_utilization": "0.9", "block_size": "16",
        "max_num_batched_tokens": "8192", "notes": "max_num_seqs=256; dtype=bfloat16",
        "weights_gib": "14.99", "available_kv_gib": "54.2", "kv_cache_tokens": "443904",
        "num_gpu_blocks": "27744",
    }  # fmt: skip
    return [f"{','.join(COLUMNS)}\n{','.join(cells[name] for name in COLUMNS)}\n".encode()]


def _journal(path: Path) -> None:
    from kvsim.whatif.sweep.journal import SweepJournal

    with SweepJournal(path.parent):
        pass


def _steps(path: Path) -> None:
    from evidence.session.files import read_plans

    for plan in read_plans(path):
        assert plan.chunks or plan.contexts


def _log(path: Path) -> None:
    from kvsim.backend.measure.log import Log

    for row in Log.open(path, SETUP).rows:
        assert row.timing.seconds >= 0


def _session(path: Path) -> None:
    from evidence.session.stage import Journal

    Journal.open(path.parent).done("prove")


def _shape(path: Path) -> None:
    from kvsim.backend.shape import Shape

    assert Shape.from_hf(path).kv_bytes_per_token > 0


def _of(content: bytes | str) -> Callable[[], list[bytes]]:
    data = content.encode() if isinstance(content, str) else content
    return lambda: [data]


def _kind(content: str) -> str:
    return "jsonl" if content.startswith("{") else "csv"


TARGETS: dict[str, Target] = {
    **{
        f"trace-{name}": Target(_kind(text), "trace", _of(text), _read_trace(name))
        for name, text in TRACES.items()
    },
    "trace-found": Target(
        "jsonl",
        "trace",
        lambda: [text.encode() for text in TRACES.values()],
        _read_trace(None),
    ),
    "lengths": Target("csv", "lengths.csv", _of("tokens,more\n5,a\n17,b\n3,\n"), _lengths),
    "scenario": Target("toml", "scenario.toml", lambda: [SCENARIO, SESSIONS], _scenario),
    "scenario-structure": Target("scenario", "scenario.toml", recipes, _structure),
    "model-config": Target("json", "config.json", _configs, _config),
    "calibration": Target("json", "fit.json", _calibrations, _calibration),
    "samples-csv": Target("csv", "steps.csv", _of(SAMPLES_CSV), _samples),
    "samples-jsonl": Target("jsonl", "steps.jsonl", _of(SAMPLES_JSONL), _samples),
    "schedule": Target("json", "case.json", _of(json.dumps(CASE)), _schedule, _beside_case),
    "schedule-drafts": Target(
        "json", "case.json", _recorded("served", *DRAFTED), _schedule, _beside_case
    ),
    "schedule-sglang": Target(
        "json", "case.json", _recorded("schedules_sglang", *OF_SGLANG), _schedule, _beside_case
    ),
    "schedule-rows": Target(
        "json", "case.expected.json", _of(json.dumps(ROWS)), _expectation, _beside_case
    ),
    **{
        f"result-{name.partition('.')[0]}": Target(
            kind, name, lambda name=name: [_result_files()[name]], _result, _beside_result
        )
        for name, kind in (
            ("summary.json", "json"),
            ("requests.parquet", "binary"),
            ("memory.parquet", "binary"),
        )
    },
    **{
        f"observed-{name.partition('.')[0]}": Target(
            kind, name, lambda name=name: [_observed_files()[name]], _observed, _beside_observed
        )
        for name, kind in (
            ("requests.csv", "csv"),
            ("stream.jsonl", "jsonl"),
            ("timeseries.csv", "csv"),
            ("steps.csv", "csv"),
        )
    },
    "observed-meta": Target(
        "json",
        "meta.json",
        lambda: [json.dumps(VLLM_META).encode(), _observed_files()["meta.json"]],
        _observed,
        _beside_observed,
    ),
    **_import_targets(),
    **_collection_targets(),
    "backend-steps": Target("jsonl", "steps.jsonl", _of(STEPS), _steps),
    "backend-log": Target("jsonl", "log.jsonl", _of(LOG), _log),
    "backend-shape": Target("json", "config.json", lambda: _configs()[:1], _shape),
    "session-journal": Target("json", "session.json", _of(SESSION), _session),
    "sweep-journal": Target("jsonl", "journal.jsonl", _of(JOURNAL), _journal),
    "startup-logs": Target("csv", "logs.csv", _log_rows, _logs),
    "torch-snapshot": Target("binary", "snapshot.pickle", _snapshots, _snapshot),
}
