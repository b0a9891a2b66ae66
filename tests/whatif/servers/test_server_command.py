"""The printed server command starts the server of the scenario, for every engine."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.scenario import Scenario
from kvsim.whatif.scenario_tables import pool_as_given, sized_in_bytes, with_value
from kvsim.whatif.servers import program, server_command
from kvsim.whatif.servers.flags import changed_flags

BASE: dict[str, Any] = {
    "model": {"name": "llama-3.1-8b", "max_model_len": 8192},
    "device": {"name": "h100-80gb"},
    "memory": {"kv_cache_tokens": 32768},
}
SERVERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "llama-server",
        {"kind": "cells"},
        {
            "kind": "llama-server",
            "n_parallel": 8,
            "kv_unified": True,
            "cache_ram": 64,
            "slot_prompt_similarity": 0.5,
            "cache_idle_slots": False,
        },
    ),
    ("llama-server", {"kind": "cells"}, {"kind": "llama-server", "n_parallel": 2}),
    (
        "sglang.launch_server",
        {"kind": "radix", "page_size": 16, "disable_radix_cache": True},
        {
            "kind": "sglang",
            "chunked_prefill_size": 4096,
            "max_running_requests": 24,
            "schedule_conservativeness": 0.3,
            "disable_overlap_schedule": True,
        },
    ),
    ("sglang.launch_server", {"kind": "radix"}, {"kind": "sglang", "schedule_policy": "lpm"}),
    ("vllm serve", {"kind": "paged"}, {"kind": "continuous", "max_num_seqs": 24}),
]


@pytest.mark.parametrize(("name", "allocator", "scheduler"), SERVERS)
def test_printed_server_command_imports_as_the_same_scenario(
    name: str, allocator: dict[str, Any], scheduler: dict[str, Any], tmp_path: Path
) -> None:
    tables = {**BASE, "allocator": [allocator], "scheduler": scheduler}
    command = server_command(tables, tmp_path)
    assert command is not None
    assert name in command.splitlines()[0]
    assert name == program(scheduler["kind"])
    assert "# no flag" not in command
    (tmp_path / "serve.sh").write_text(command + "\n")
    out = tmp_path / "mine.toml"
    arguments = ["import", str(tmp_path / "serve.sh"), "--device", "h100-80gb", "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    made = tomllib.loads(out.read_text())
    made.pop("workload", None)
    again, before = Scenario.from_table(made, tmp_path), Scenario.from_table(tables, tmp_path)
    asked = {key: getattr(before.scheduler, key) for key in scheduler if key != "kind"}
    assert {key: getattr(again.scheduler_of(again.allocator[0]), key) for key in asked} == asked
    kept = {key: getattr(before.allocator[0], key) for key in allocator if key != "kind"}
    assert {key: getattr(again.allocator[0], key) for key in kept} == kept


def test_llama_server_command_has_the_sliding_window_flags(tmp_path: Path) -> None:
    cells = {"kind": "cells", "n_ubatch": 256, "swa_full": True}
    tables = {**BASE, "model": {"name": "gemma-3-1b"}, "allocator": [cells]}
    command = server_command({**tables, "scheduler": {"kind": "llama-server"}}, tmp_path)
    assert command is not None
    assert "--ubatch-size 256" in command
    assert "--swa-full" in command


def test_settings_without_a_flag_are_named(tmp_path: Path) -> None:
    allocator = {"kind": "radix", "swa_eviction_interval": 64}
    tables = {**BASE, "model": {"name": "gpt-oss-20b"}, "allocator": [allocator]}
    command = server_command({**tables, "scheduler": {"kind": "sglang"}}, tmp_path)
    assert command is not None
    assert command.endswith("# no flag sets allocator.0.swa_eviction_interval = 64")


@pytest.mark.parametrize(("share", "flag"), [("auto", ""), (0.8, " --mem-fraction-static 0.8")])
def test_sglangs_own_share_of_the_device_needs_no_flag(
    share: str | float, flag: str, tmp_path: Path
) -> None:
    tables = {**BASE, "allocator": [{"kind": "radix"}], "scheduler": {"kind": "sglang"}}
    command = server_command({**tables, "memory": {"mem_fraction_static": share}}, tmp_path)
    assert command is not None
    assert ("--mem-fraction-static" in command) == bool(flag)
    assert flag in command.replace(" \\\n ", "")
    assert "--max-total-tokens" not in command


@pytest.mark.parametrize(
    ("model", "memory", "flags"),
    [
        ("falcon-mamba-7b", {"kv_cache_tokens": 50_000}, ("--max-total-tokens 50000",)),
        ("qwen3-next-80b-a3b", {"kv_cache_tokens": 50_000}, ("--max-total-tokens 50000",)),
        (
            "falcon-mamba-7b",
            {"mem_fraction_static": 0.8, "kv_cache_tokens": 50_000, "mamba_full_memory_ratio": 2},
            (
                *("--mem-fraction-static 0.8", "--max-total-tokens 50000"),
                "--mamba-full-memory-ratio 2",
            ),
        ),
    ],
)
def test_sglang_max_total_tokens_exclude_the_state_pool(
    model: str, memory: dict[str, Any], flags: tuple[str, ...], tmp_path: Path
) -> None:
    states = {} if "mem_fraction_static" in memory else {"max_mamba_cache_size": 60}
    tables = {
        "model": {"name": model, "tensor_parallel_size": 4},
        "device": BASE["device"],
        "memory": memory,
        "allocator": [{"kind": "radix", **states}],
        "scheduler": {"kind": "sglang"},
    }
    command = server_command(tables, tmp_path)
    assert command is not None
    assert all(flag in command for flag in flags)


def test_scheduler_without_a_server_has_no_command(tmp_path: Path) -> None:
    tables = {**BASE, "allocator": [{"kind": "paged"}], "scheduler": {"kind": "orca"}}
    assert server_command(tables, tmp_path) is None
    assert program("orca") == "scenario"


def test_attention_copies_are_exported_and_imported_unchanged(tmp_path: Path) -> None:
    """SGLang's flags describe the whole server, the scenario's options one data-parallel copy."""
    scheduler = {
        "kind": "sglang",
        "chunked_prefill_size": 1024,
        "max_running_requests": 32,
        "schedule_conservativeness": 0.3,
        "disable_overlap_schedule": True,
    }
    model = {"name": "deepseek-r1", "max_model_len": 8192, "tensor_parallel_size": 2}
    model |= {"data_parallel_size": 4, "enable_expert_parallel": True}
    tables = {
        "model": model,
        "device": {"name": "h200"},
        "memory": {"mem_fraction_static": "auto"},
        "allocator": [{"kind": "radix"}],
        "scheduler": scheduler,
    }
    command = server_command(tables, tmp_path)
    assert command is not None
    for flag in ("--tp-size 8", "--dp-size 4", "--enable-dp-attention", "--ep-size 8"):
        assert flag in command
    assert "--chunked-prefill-size 4096" in command
    assert "--schedule-conservativeness" not in command
    (tmp_path / "serve.sh").write_text(command + "\n")
    arguments = ["import", str(tmp_path / "serve.sh"), "--device", "h200"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "mine.toml")])
    assert done.exit_code == 0, done.output
    made = tomllib.loads((tmp_path / "mine.toml").read_text())
    assert {key: made["model"][key] for key in model if key != "name"} == {
        key: value for key, value in model.items() if key != "name"
    }
    assert {key: made["scheduler"][key] for key in scheduler} == scheduler
    assert made["fleet"] == {"replicas": 4, "router": {"kind": "sglang-dp", "lockstep": True}}


def test_cure_lists_only_changed_flags(tmp_path: Path) -> None:
    """Each flag is printed with its current value; settings that the user did not change are
    absent.
    """
    own = {**BASE, "allocator": [{"kind": "paged"}], "scheduler": {"kind": "continuous"}}
    own["scheduler"] |= {"max_num_seqs": 16}
    sized = sized_in_bytes(own, tmp_path)
    best = with_value(sized, "scheduler.max_num_seqs", 32)
    best = with_value(best, "allocator.0.enable_prefix_caching", False)
    today = server_command(own, tmp_path)
    cured = server_command(pool_as_given(best, own), tmp_path, own)
    assert today is not None
    assert cured is not None
    assert "async-scheduling" not in today
    assert "scheduler.async_scheduling = false (vLLM true)" in today
    assert changed_flags(today, cured).splitlines() == [
        "--no-enable-prefix-caching  # today: not set",
        "--max-num-seqs 32  # today: --max-num-seqs 16",
    ]
    # Other tokens of the same bytes are another number of blocks.
    fewer_bits = with_value(sized, "model.kv_cache_dtype", "fp8")
    assert "kv_cache_bytes" in pool_as_given(fewer_bits, own)["memory"]
    assert pool_as_given(best, own)["memory"] == own["memory"]
