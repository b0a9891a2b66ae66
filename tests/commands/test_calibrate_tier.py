"""`kvsim calibrate tier` on the command line, and its fit of link speeds."""

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvsim.backend.calibrate.tier import fit_link
from kvsim.backend.measure.tier_copies import CopySample
from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario

SIZES = [1 << power for power in range(12, 28)]


def test_calibrate_tier_recovers_link_speeds() -> None:
    """The samples are exact: 30 us plus 25 or 20 GB/s, without noise."""
    rates = {"store": 25e9, "load": 20e9}
    samples = [
        CopySample(way, size, 30e-6 + size / rate) for size in SIZES for way, rate in rates.items()
    ]
    found = fit_link(samples, one_latency=True)
    assert found.latency_s == pytest.approx({"store": 30e-6, "load": 30e-6})
    assert found.bytes_per_s == pytest.approx(rates)
    assert all(errors.max < 1e-6 for errors in found.errors.values())


def test_fitted_file_link_has_separate_read_and_write_latencies() -> None:
    latencies = {"write": 200e-6, "read": 80e-6}
    samples = [
        CopySample(way, size, latency + size / 2e9)
        for size in SIZES
        for way, latency in latencies.items()
    ]
    assert fit_link(samples, one_latency=False).latency_s == pytest.approx(latencies)


def test_copy_times_not_linear_in_size_have_large_fit_errors() -> None:
    samples = [CopySample("store", size, (size / 1e9) ** 0.5) for size in SIZES]
    assert fit_link(samples, one_latency=True).errors["store"].max > 0.5


def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    table = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 256,
        "max_position_embeddings": 256,
        "torch_dtype": "float32",
    }
    path.write_text(json.dumps(table))
    return path


def test_tier_tables_written_by_calibrate_run_in_a_scenario(tmp_path: Path) -> None:
    out, folder = tmp_path / "tier.toml", tmp_path / "files"
    folder.mkdir()
    arguments = ["calibrate", "tier", "--model", str(config(tmp_path)), "--out", str(out)]
    sizes = ["--folder", str(folder), "--most-mib", "1", "--kv-offloading-size", "2"]
    done = CliRunner().invoke(app, [*arguments, *sizes, "--json"])
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)["tier"]) == {"store", "load", "write", "read"}
    tables = tomllib.loads(out.read_text())["tier"]
    assert [table["kind"] for table in tables] == ["vllm-offloading", "file-system"]
    assert tables[0]["kv_offloading_size"] == 2
    assert not list(folder.iterdir())
    scenario = {
        "model": {"name": "llama-3.1-8b", "max_model_len": 512},
        "device": {"name": "h100-80gb"},
        "memory": {"kv_cache_tokens": 2048},
        "allocator": {"kind": "paged"},
        "tier": tables,
    }
    assert len(Scenario.from_table(scenario).tier) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--folder", "nowhere"], "no such folder"),
        (["--block-size", "1000000"], "no room for copies of one block"),
    ],
)
def test_calibrate_tier_names_unmeasurable_arguments(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    out = tmp_path / "tier.toml"
    given = ["calibrate", "tier", "--model", str(config(tmp_path)), "--out", str(out)]
    done = CliRunner().invoke(app, [*given, "--most-mib", "1", *arguments])
    assert isinstance(done.exception, InputError)
    assert words in str(done.exception)
    assert not out.exists()
