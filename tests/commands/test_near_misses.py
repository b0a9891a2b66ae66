"""Values that users give by mistake: the error or the answer names what they mean."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvsim.capacity.options import LORA_RANKS
from kvsim.cli import app
from kvsim.interchange.imported import import_sources
from kvsim.plumbing.errors import InputError
from kvsim.report.differences import differences
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

ROOT = Path(__file__).parents[2]
POOL = ["memory", "llama-3.1-8b", "--device", "h100"]


def said(*words: str) -> str:
    found = CliRunner().invoke(app, [*words])
    return " ".join(f"{found.output} {found.exception or ''}".split())


@pytest.mark.parametrize(
    ("flag", "short", "long"),
    [
        ("--max-model-len", "32K", "32768"),
        ("--num-tokens", "8K", "8192"),
        ("--kv-cache-tokens", "64k", "64000"),
        ("--kv-cache-bytes", "4G", str(4 << 30)),
        ("--num-gpu-blocks", "1K", "1024"),
    ],
)
def test_counts_with_suffixes_are_read_as_by_vllm(flag: str, short: str, long: str) -> None:
    assert said(*POOL, flag, short, "--json") == said(*POOL, flag, long, "--json")
    assert "no count" in said(*POOL, flag, "0")


@pytest.mark.parametrize("name", ["awq", "gptq", "awq_marlin", "gptq_marlin"])
def test_vllm_names_of_4_bit_quantization_size_as_int4(name: str) -> None:
    assert said(*POOL, "--quantization", name, "--json") == said(
        *POOL, "--quantization", "int4", "--json"
    )


def test_memory_ranks_and_blocks_follow_vllm() -> None:
    assert "it is one of 1, 8, 16" in said(*POOL, "--max-loras", "2", "--max-lora-rank", "100")
    for rank in LORA_RANKS:
        assert "one of" not in said(*POOL, "--max-loras", "2", "--max-lora-rank", str(rank))
    assert "it would refuse blocks of 7" in said(*POOL, "--block-size", "7")
    assert "refuse blocks" not in said(*POOL, "--block-size", "32")


def test_drafter_that_is_a_method_and_repeated_device_are_refused() -> None:
    found = said(*POOL, "--drafter", "eagle3")
    assert "memory.drafter: the name of a method, not of a drafter" in found
    assert "[speculative_config]" in found
    found = said("memory", "br.toml", "--device", "h100")
    assert "--device: the scenario says it; leave it out, or change br.toml" in found


def test_import_refuses_an_empty_file_and_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(" \n")
    with pytest.raises(InputError, match=r"server\.log: the file is empty"):
        import_sources([str(path)], {}, tmp_path / "out.toml")
    recipe = ROOT / "workloads" / "chat.toml"
    with pytest.raises(InputError, match=r"a scenario of kvsim.*kvsim run"):
        import_sources([str(recipe)], {}, tmp_path / "out.toml")


def test_errors_name_kinds_instead_of_classes() -> None:
    for part in ("engine", "memory", "fleet"):
        for path in (ROOT / "kvsim" / part).rglob("*.py"):
            assert "value=type(" not in path.read_text(), path
    table = {
        "model": {"name": "opt-125m"},
        "device": {"name": "h100"},
        "memory": {"num_gpu_blocks": 99},
        "allocator": "paged",
        "tier": {"kind": "file-system"},
    }
    with pytest.raises(
        InputError, match=r"tier\.0\.kind: this tier cannot be the first; begin with"
    ):
        Simulation(Scenario.from_table(table), [])


def test_difference_to_an_empty_list_names_the_keys_of_its_items() -> None:
    one, other = {"tier": [{"kind": "lmcache", "gib": 4}]}, {"tier": []}
    assert [each.key for each in differences([one, other])] == ["tier.0.kind", "tier.0.gib"]
    assert [each.key for each in differences([{"note": "a"}, {"note": ""}])] == ["note"]
