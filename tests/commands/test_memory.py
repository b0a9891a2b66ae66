"""`kvsim memory`: table, JSON, refusals, and equality with the pool of a run."""

import json

import pytest
import typer
from typer.testing import CliRunner

from kvsim.commands.memory import memory
from kvsim.engine.replica import assemble
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

app = typer.Typer()
app.command()(memory)


def ask(*words):
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def answer(*words):
    return json.loads(ask(*words, "--json"))


def test_memory_command_reproduces_the_papers_pool():
    """OPT-13B in 983 blocks: 15.7K slots, and 7 sequences under max-buffer, as in Orca (Max)."""
    found = answer("opt-13b", "--device", "a100-40gb", "--num-gpu-blocks", 983, "--num-tokens", 499)
    assert found["bytes_per_token"] == 819_200
    assert (found["num_gpu_blocks"], found["block_size"], found["pool_tokens"]) == (983, 16, 15_728)
    assert found["weights_bytes"] == 2 * 12_853_473_280
    (row,) = found["sequences"]
    assert row == {
        "tokens": 499,
        "bytes": 499 * 819_200,
        "max_buffer": 7,
        "doubling": 15_728 // 512,
        "paged": 982 // 32,
    }


def test_memory_json_lists_sliding_window_layers():
    found = answer("google/gemma-3-12b-it", "--device", "h200", "--num-tokens", 32_768)
    kinds = {group["kind"]: group for group in found["groups"]}
    assert (kinds["sliding"]["layers"], kinds["sliding"]["window_tokens"]) == (40, 1024)
    (row,) = found["sequences"]
    assert row["bytes"] / GIB == pytest.approx(2.31, abs=0.005)
    assert row["paged"] > 4 * row["doubling"]


def test_memory_items_sum_to_the_device_and_tp_halves_kv_per_gpu():
    one = answer("llama-3-70b", "--device", "h200", "--quantization", "fp8")
    two = answer(
        "llama-3-70b", "--device", "h200", "--tensor-parallel-size", 2, "--quantization", "fp8"
    )
    for found in (one, two):
        keys = ("unused", "weights", "activation", "other", "pool")
        assert sum(found[f"{key}_bytes"] for key in keys) == found["device_bytes"]
    assert two["bytes_per_token"] * 2 == one["bytes_per_token"]
    lengths = [512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192]
    assert [row["tokens"] for row in one["sequences"]] == lengths


def test_memory_command_reads_a_config_file(tmp_path):
    path = tmp_path / "config.json"
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100}
    config |= {"num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 1000}
    path.write_text(json.dumps(config))
    found = answer(path, "--device", "l4", "--kv-cache-tokens", 4000, "--kv-cache-dtype", "fp32")
    assert found["bytes_per_token"] == 2 * 2 * 64 * 4
    assert [row["max_buffer"] for row in found["sequences"]] == [4, 4, 4]


def test_memory_command_prints_parameters_and_the_kv_cache_line():
    out = ask("deepseek-ai/DeepSeek-V3", "--device", "h200", "--tensor-parallel-size", 8)
    assert "671 B parameters, 37.6 active; on 8 x h200" in out
    lines = out.splitlines()
    assert lines[2].startswith("GPU KV cache size: ")
    assert lines[3].startswith("Maximum concurrency for 163,840 tokens per request: ")
    assert len(lines) <= 24
    out = ask("deepseek-ai/DeepSeek-V3", "--device=h200", "--tensor-parallel-size=8", "--verbose")
    for words in ("mla", "68.62 KiB", "activations (estimate)", "KV pool", "blocks of 16", "paged"):
        assert words in out


def test_memory_command_prints_the_engine_versions_log_lines():
    """gpt-oss-120b on an H200, as vLLM 0.22 logged it for two lengths; 0.19 logs blocks instead."""
    given = ("gpt-oss-120b", "--device", "h200", "--kv-cache-bytes", 104_202 * 589_824)
    given += ("--max-num-batched-tokens", 8192)
    short = answer(*given, "--engine-version", "0.22.0", "--max-model-len", 2068)["engine"]
    long = answer(*given, "--engine-version", "0.22.0", "--max-model-len", 9472)["engine"]
    assert (short["num_gpu_blocks"], short["bytes_per_block"]) == (104_202, 589_824)
    assert short["kv_cache_size_tokens"] == pytest.approx(825_607, rel=1e-4)
    assert long["kv_cache_size_tokens"] == pytest.approx(886_768, rel=1e-4)
    assert long["log"][1] == "Maximum concurrency for 9,472 tokens per request: 93.62x"
    older = answer(*given, "--engine-version", "0.19.0", "--max-model-len", 9472)["engine"]
    assert older["kv_cache_size_tokens"] == 104_202 // 2 * 16


def test_memory_command_says_if_the_engine_would_not_start():
    """Llama-3.1-8B on an RTX 3090: 1,478 blocks hold 23,648 tokens, 29,000 were requested."""
    given = ("llama-3.1-8b", "--device", "rtx-3090", "--engine-version", "V0")
    given += ("--kv-cache-bytes", 1478 * 16 * 131_072)
    found = answer(*given, "--max-model-len", 29_000)["engine"]
    assert (found["starts"], found["longest_tokens"]) == (False, 1477 * 16)
    assert found["max_concurrency"] == pytest.approx(0.82, abs=0.005)
    assert found["log"] == [
        "refused to start: 29,000 tokens do not fit; estimated maximum model length 23,632"
    ]
    assert answer(*given, "--max-model-len", 23_632)["engine"]["starts"]


def test_hybrid_model_enlarges_the_block_size():
    found = answer("Qwen/Qwen3.6-35B-A3B", "--device", "h100", "--max-model-len", 8192)
    assert found["engine"]["block_size"] == 1056
    assert [group["kind"] for group in found["engine"]["groups"]] == ["recurrent"] * 3 + ["full"]
    words = ask("Qwen/Qwen3.6-35B-A3B", "--device", "h100", "--max-model-len", 8192)
    assert "would set blocks of 1,056 tokens in 4 groups of layers" in words


def test_mamba_model_concurrency_equals_the_number_of_states(tmp_path):
    """In Mamba-2 a sequence takes one state at any length, so the pool is a number of sequences."""
    config = {"model_type": "mamba2", "hidden_size": 256, "num_hidden_layers": 4, "num_heads": 8}
    config |= {"head_dim": 64, "state_size": 16, "vocab_size": 1000, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    given = (tmp_path, "--device", "l4", "--max-model-len", 4096, "--kv-cache-bytes", 10**9)
    found = answer(*given)
    state = 4 * 2 * (8 * 64 * 16 + 3 * (8 * 64 + 2 * 8 * 16))
    assert found["groups"][0]["state_bytes"] == state
    assert found["engine"]["max_concurrency"] == 10**9 // state
    assert found["pool_tokens"] == 10**9 // state * 4096
    assert {row["paged"] for row in found["sequences"]} == {10**9 // state - 1}  # the null block
    assert "GPU KV cache size" in ask(*given)
    given = (tmp_path, "--device", "l4", "--max-model-len", 4096)
    again = answer(*given, "--kv-cache-tokens", found["pool_tokens"])
    assert again["engine"]["num_gpu_blocks"] == found["engine"]["num_gpu_blocks"]
    with pytest.raises(InputError, match="states do not grow with tokens"):
        ask(*given, "--kv-cache-tokens", 1000, "--engine-version", "V0")


def test_stage_without_attention_does_not_limit_the_pool():
    """Qwen3.5-27B in 64 pipeline stages: three of four stages have no attention layer."""
    found = answer(
        "qwen3.5-27b", "--device", "h100", "--pipeline-parallel-size", 64, "--max-model-len", 8192
    )
    assert found["engine"]["num_gpu_blocks"] > 0


def test_device_memory_alone_sizes_the_pool():
    listed = answer("llama-3-8b", "--device", "h100")
    assert answer("llama-3-8b", "--device-memory", 79.18)["pool_bytes"] == listed["pool_bytes"]
    half = answer("llama-3-8b", "--device", "h100", "--device-memory", 40)
    assert (half["device"], half["device_bytes"]) == ("h100", 40 * GIB)


def test_tensor_parallelism_shares_weights_and_cache():
    common = ("--device", "h200", "--max-model-len", 8192)
    one = answer("llama-3.1-70b", *common, "--quantization", "fp8")
    stages = answer(
        "llama-3.1-70b", *common, "--quantization", "fp8", "--pipeline-parallel-size", 2
    )
    assert stages["bytes_per_token"] * 2 == one["bytes_per_token"]
    assert 0.45 < stages["weights_bytes"] / one["weights_bytes"] < 0.55
    alone = answer("qwen3-30b-a3b", *common)
    shared = answer("qwen3-30b-a3b", *common, "--data-parallel-size", 8, "--enable-expert-parallel")
    assert shared["bytes_per_token"] == alone["bytes_per_token"]
    assert shared["weights_bytes"] < alone["weights_bytes"] / 4
    whole = ("deepseek-v3", *common, "--tensor-parallel-size", 8)
    plain, split = answer(*whole), answer(*whole, "--decode-context-parallel-size", 8)
    ratio = split["engine"]["max_concurrency"] / plain["engine"]["max_concurrency"]
    assert ratio == pytest.approx(8, rel=0.01)


def test_drafter_and_adapter_weights_shrink_the_pool():
    common = ("llama-3.1-8b", "--device", "h100", "--max-model-len", 8192)
    plain = answer(*common)
    drafted = answer(*common, "--drafter", "llama-3.2-1b", "--num-speculative-tokens", 3)
    adapted = answer(*common, "--max-loras", 8, "--max-lora-rank", 64)
    assert 2.2 < (drafted["weights_bytes"] - plain["weights_bytes"]) / GIB < 2.4
    assert drafted["engine"]["bytes_per_block"] > plain["engine"]["bytes_per_block"]
    # 8 adapters of rank 64: 2 bytes of 64 * (n + m) for each of the seven matrices of 32 layers.
    matrices = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14_336)
    assert adapted["weights_bytes"] - plain["weights_bytes"] == 8 * 64 * 2 * 32 * matrices


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("llama-3-8b",), r"--device: no GPU is named"),
        (("llama-3-8b", "--device", "h100", "--pipeline-parallel-size", "99"), "needs a layer"),
        (("llama-3-8b", "--device", "h100", "--decode-context-parallel-size", "2"), "divide"),
        (("llama-9", "--device", "h100"), r"unknown model"),
        (("opt-13b", "--device", "h1000"), r"unknown device"),
        (("opt-13b", "--device", "h100", "--num-tokens", "4096"), r"--num-tokens.*limit 2048"),
        (("opt-13b", "--device", "l4"), r"no memory is left for KV"),
        (("nothing.json", "--device", "h100"), r"nothing\.json: cannot read"),
    ],
)
def test_memory_command_refuses_invalid_options(words, message):
    with pytest.raises(InputError, match=message):
        ask(*words)


@pytest.mark.parametrize(("alignment", "block"), [(None, 1056), (1088, 1088)])
def test_run_uses_the_number_of_blocks_that_memory_prints(alignment, block):
    """With prefill checkpoints of states, block sizes are multiples of 64 tokens."""
    key = "prefill_checkpoint_alignment"
    tables = {
        "model": {"name": "qwen3.5-35b-a3b", "max_model_len": 65536},
        "device": {"name": "h200"},
        "allocator": [{"kind": "paged"} | ({} if alignment is None else {key: alignment})],
        "scheduler": {"kind": "continuous", "max_num_seqs": 64, "max_num_batched_tokens": 2048},
    }
    simulation = Simulation(Scenario.from_table(tables), [Request("r", 0, 3000, 4)])
    spec = simulation.replica_spec(simulation.scenario.allocator[0])
    replica = assemble(spec, simulation.stream, simulation.step_time)
    allocator, pool = replica.scheduler.allocator, simulation.pool
    given = ("qwen3.5-35b-a3b", "--device", "h200", "--max-model-len", 65536)
    given += ("--max-num-seqs", 64, "--max-num-batched-tokens", 2048)
    if alignment is not None:
        given += ("--prefill-checkpoint-alignment", alignment)
    engine = answer(*given)["engine"]
    assert allocator.block_size == pool.engine_block_size == engine["block_size"] == block
    assert allocator.block_bytes == engine["bytes_per_block"]
    assert pool.engine_num_gpu_blocks == engine["num_gpu_blocks"]
    assert f"blocks of {block:,} tokens" in ask(*given)


@pytest.mark.parametrize(
    ("model", "version", "told"),
    [
        ("llama-3-8b", "0.33", "no recurrent state is kept"),
        ("qwen3.5-35b-a3b", "0.28", "not of this version"),
    ],
)
def test_prefill_checkpoint_alignment_is_refused_for_unsupported_models(model, version, told):
    with pytest.raises(InputError, match=told):
        ask(
            *(model, "--device", "h200", "--engine-version", version, "--max-model-len", 8192),
            *("--prefill-checkpoint-alignment", 64),
        )


def test_memory_command_notes_differences_of_kvsim_run():
    """Blocks before the current chunk of Llama 4's local attention count as freed."""
    given = ("--device", "h200", "--tensor-parallel-size", 8, "--max-model-len", 65536)
    words = " ".join(ask("llama-4-scout", *given).split())
    assert "36 layers attend within chunks of 8,192 tokens" in words
    assert "as counted here and in `kvsim run`" in words
    assert "chunks" not in ask("llama-4-scout", *given, "--engine-version", "0.13")


@pytest.mark.parametrize(
    ("flag", "value", "other"),
    [("num-speculative-tokens", 5, "drafter"), ("max-lora-rank", 64, "max_loras")],
)
def test_memory_flag_without_the_flag_it_needs_is_refused(flag, value, other):
    with pytest.raises(InputError, match=f"changes nothing without {other}"):
        ask("llama-3.1-8b", "--device", "h100", f"--{flag}", value)


def test_memory_command_counts_data_parallel_copies():
    words = ("deepseek-ai/DeepSeek-V3", "--device", "b200", "--data-parallel-size", 8)
    engine = answer(*words)["engine"]
    out = " ".join(ask(*words).split())
    assert "on 8 x b200, figures of one" in out
    assert f"All 8 copies together: {8 * engine['kv_cache_size_tokens']:,} tokens" in out


@pytest.mark.parametrize(
    ("dtype", "ratio"), [("fp4_e2m1", 16 / 4.5), ("q8_0", 16 / 8.5), ("q4_0", 16 / 4.5)]
)
def test_cache_dtype_names_of_other_engines_are_accepted(dtype, ratio):
    plain, small = (
        answer("llama-3.1-8b", "--device", "h100", "--kv-cache-dtype", each)["bytes_per_token"]
        for each in ("auto", dtype)
    )
    assert plain / small == pytest.approx(ratio)


def test_memory_notes_a_pool_larger_than_the_device():
    """The note is in the table and in a run's notes, and absent if the pool fits."""
    given = ("gemma-4-31b", "--device", "rtx-5090", "--kv-cache-dtype", "fp8")
    words = " ".join(ask(*given, "--num-gpu-blocks", 53_042).split())
    assert "weights (58.22 GiB) take 122.96 GiB, more than the 31.36 GiB of one rtx-5090" in words
    assert "more than" not in ask("opt-13b", "--device", "a100-40gb", "--kv-cache-tokens", 15_728)


def test_doubling_wastes_at_lengths_between_powers_of_two():
    found = answer("llama-3.1-8b", "--device", "h100", "--max-model-len", 4096)
    rows = {row["tokens"]: row for row in found["sequences"]}
    assert list(rows) == [512, 768, 1024, 1536, 2048, 3072, 4096]
    assert rows[2048]["doubling"] == rows[2048]["paged"]
    assert rows[3072]["doubling"] < 0.8 * rows[3072]["paged"]


def test_memory_notes_an_engine_version_newer_than_known():
    said = " ".join(ask("opt-125m", "--device", "h100", "--engine-version", "9.99").split())
    assert "note: vLLM 9.99 is newer than any version that kvsim knows: the rules are" in said
    assert "vLLM 0.33 would set blocks" in said
    known = " ".join(ask("opt-125m", "--device", "h100", "--engine-version", "0.33.2").split())
    assert "newer than" not in known
    assert "vLLM 0.33.2 would set blocks" in known


@pytest.mark.parametrize("model", ["qwen3.5-9b", "gpt-oss-20b", "qwen3-8b"])
def test_memory_of_a_scenario_reports_the_tokens_its_engine_logs(model, tmp_path):
    """Hybrid models too; `kvsim memory` with flags reports the same number."""
    path = tmp_path / "served.toml"
    path.write_text(f"""
        [model]
        name = "{model}"
        max_model_len = 32768
        [device]
        name = "h100"
        [memory]
        gpu_memory_utilization = 0.9
        [scheduler]
        kind = "continuous"
        max_num_seqs = 256
        max_num_batched_tokens = 8192
        [[allocator]]
        kind = "paged"
        enable_prefix_caching = true
        [workload]
        kind = "synthetic"
        num_requests = 1
        arrivals = {{ kind = "poisson", rate_per_s = 1.0 }}
        prompt = {{ kind = "fixed", tokens = 10 }}
        output = {{ kind = "fixed", tokens = 10 }}
    """)
    found = CliRunner().invoke(app, [str(path), "--json"])
    assert found.exit_code == 0, found.output
    asked = [
        *(model, "--device", "h100", "--json", "--enable-prefix-caching"),
        *("--gpu-memory-utilization", "0.9", "--max-model-len", "32768"),
        *("--max-num-seqs", "256", "--max-num-batched-tokens", "8192"),
    ]
    by_flags = json.loads(CliRunner().invoke(app, asked).stdout)
    assert json.loads(found.stdout)["tokens"] == by_flags["engine"]["kv_cache_size_tokens"]


def test_limit_below_max_running_requests_is_noted():
    words = ("qwen3.5-35b-a3b", "--quantization", "fp8", "--device", "h100")
    words += ("--mem-fraction-static", 0.88, "--max-model-len", 32_768)
    found = answer(*words, "--max-running-requests", 128)
    limit = found["pools"]["max_running_requests"]
    assert limit < 128
    assert f"the pool of states allows {limit} at a time" in found["notes"][-1]
    assert "allows" not in " ".join(answer(*words, "--max-running-requests", 8)["notes"])
