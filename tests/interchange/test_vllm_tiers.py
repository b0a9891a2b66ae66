"""Tiers as flags of `vllm serve`, there and back."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kvsim.engine.connectors import TIERS
from kvsim.interchange.imported import import_sources
from kvsim.interchange.vllm_tiers import flags_of, tiers_of
from kvsim.plumbing.errors import InputError

HOST = {"kind": "vllm-offloading", "kv_offloading_size": 8.0}
CHAINS: list[list[dict[str, Any]]] = [
    [],
    [HOST],
    [HOST | {"eviction_policy": "arc", "blocks_per_chunk": 4, "offload_prompt_only": False}],
    [HOST | {"store_threshold": 2, "max_tracker_size": 100, "sync_load_budget_bytes": 1 << 20}],
    [HOST, {"kind": "file-system", "n_read_threads": 4}],
    [{"kind": "vllm-simple-offloading", "kv_offloading_size": 2.5, "lazy_offload": True}],
]


def read(flags: list[str]) -> list[dict[str, Any]]:
    told = dict(zip(flags[::2], flags[1::2], strict=True))
    size, transfer = told.get("--kv-offloading-size"), told.get("--kv-transfer-config")
    tiers, notes = tiers_of(
        None if size is None else float(size), None if transfer is None else json.loads(transfer)
    )
    assert not notes
    return tiers


@pytest.mark.parametrize("tiers", CHAINS, ids=str)
def test_tiers_written_as_flags_are_read_back_unchanged(tiers: list[dict[str, Any]]) -> None:
    assert read(list(flags_of(tiers))) == tiers
    whole = [
        {"kind": tier["kind"]} | TIERS.parse(tier, "tier").model_dump(exclude_none=True)
        for tier in tiers
    ]
    assert [tier["kind"] for tier in read(list(flags_of(whole)))] == [t["kind"] for t in tiers]


@pytest.mark.parametrize("tiers", [CHAINS[1], CHAINS[4]], ids=str)
def test_imported_vllm_command_gives_its_kv_tiers(
    tmp_path: Path, tiers: list[dict[str, Any]]
) -> None:
    words = ["vllm", "serve", "facebook/opt-125m", *flags_of(tiers)]
    path = tmp_path / "serve.sh"
    path.write_text(shlex.join(words) + "\n")
    out = tmp_path / "scenario.toml"
    imported = import_sources([str(path)], {"gpu": "a100-40gb"}, out)
    assert imported.scenario["tier"] == tiers
    assert "host_cache_gib" not in imported.scenario["allocator"][0]


def test_kv_tiers_of_a_multi_connector_are_read() -> None:
    (_, text) = flags_of(CHAINS[4])
    nixl = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    both = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": [nixl, json.loads(text)]},
    }
    tiers, notes = tiers_of(None, both)
    assert tiers == CHAINS[4]
    assert notes == ["kv_transfer_config: the connector NixlConnector is not simulated from flags"]


def test_lmcache_tier_as_vllm_flags_is_refused() -> None:
    with pytest.raises(InputError, match=r"tier\.0\.kind.*lmcache"):
        list(flags_of([{"kind": "lmcache", "max_local_cpu_size": 1.0}]))


def test_unsupported_connector_settings_are_noted() -> None:
    tiers, notes = tiers_of(None, {"kv_connector": "LMCacheMPConnector"})
    assert not tiers
    assert "LMCacheMPConnector" in notes[0]
    config = {
        "kv_connector": "OffloadingConnector",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use": 1 << 30,
            "spec_module": "mine",
            "secondary_tiers": [{"type": "obj"}],
        },
    }
    tiers, notes = tiers_of(None, config)
    assert [tier["kind"] for tier in tiers] == ["vllm-offloading"]
    assert len(notes) == 2
