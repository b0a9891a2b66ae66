"""Manifests with replicas, and files of several servers, make a scenario with a fleet."""

from pathlib import Path
from typing import Any

import pytest
from support.import_samples import SAMPLES, write

from kvsim.interchange.imported import import_sources
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.simulation import simulate

GIVEN = {"gpu": "h100", "model": "facebook/opt-125m"}
CONTAINER = """        image: vllm/vllm-openai:v0.22.1
        command: ["vllm", "serve", "facebook/opt-125m"]
        args: ["--max-num-seqs", "64"{flags}]
"""
DEPLOYMENT = (
    "kind: Deployment\nspec:\n  replicas: {count}\n  template:\n    spec:\n      containers:\n"
    f"      - name: server\n{CONTAINER}"
)
GATEWAY = "---\nkind: Deployment\nmetadata: {name: gateway}\nspec:\n  replicas: 2\n"
HELM = """servingEngineSpec:
  modelSpec:
  - name: opt
    modelURL: facebook/opt-125m
    replicaCount: 3
    vllmConfig: {{maxNumSeqs: 64}}
routerSpec:
  replicaCount: 2
  routingLogic: "{logic}"
"""
COMPOSE = (
    "services:\n  server:\n    image: vllm/vllm-openai:v0.22.1\n"
    '    command: ["--model", "facebook/opt-125m"]\n    deploy:\n      replicas: 5\n'
)


def fleet(*sources: Path) -> dict[str, Any] | None:
    found = import_sources([str(each) for each in sources], GIVEN, sources[0].with_name("x.toml"))
    Scenario.from_table(found.scenario)
    table: dict[str, Any] | None = found.scenario.get("fleet")
    return table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            DEPLOYMENT.format(count=4, flags="") + GATEWAY,
            {"replicas": 4, "router": {"kind": "round-robin"}},
        ),
        (DEPLOYMENT.format(count=1, flags=""), None),
        (
            DEPLOYMENT.format(count=1, flags=', "--data-parallel-size", "8"'),
            {"replicas": 8, "router": {"kind": "vllm-dp"}},
        ),
        (
            DEPLOYMENT.format(count=2, flags=', "--data-parallel-size=4"'),
            {"replicas": 8, "router": {"kind": "vllm-dp"}, "cells": 2},
        ),
        (HELM.format(logic="prefixaware"), {"replicas": 3, "router": {"kind": "prefix-aware"}}),
        (HELM.format(logic="session"), {"replicas": 3, "router": {"kind": "consistent-hash"}}),
        (HELM.format(logic="kvaware"), {"replicas": 3, "router": {"kind": "round-robin"}}),
        (COMPOSE, {"replicas": 5, "router": {"kind": "round-robin"}}),
    ],
)
def test_replicas_of_a_manifest_become_a_fleet(
    tmp_path: Path, text: str, expected: dict[str, Any] | None
) -> None:
    assert fleet(write(tmp_path / "manifest.yaml", text)) == expected


def test_replica_count_of_a_manifest_with_two_servers_is_ambiguous(tmp_path: Path) -> None:
    two = DEPLOYMENT.format(count=4, flags="") + "---\n" + DEPLOYMENT.format(count=2, flags="")
    path = write(tmp_path / "manifest.yaml", two)
    found = import_sources([str(path)], GIVEN, tmp_path / "x.toml")
    assert "fleet" not in found.scenario
    assert any("replicas: 2, 4" in note for note in found.reads[0].description.notes)


def scrapes(folder: Path, *blocks: int) -> list[Path]:
    """Scrapes of servers with pools of so many blocks."""
    paths = []
    for number, count in enumerate(blocks):
        (folder / str(number)).mkdir()
        text = SAMPLES["vllm-metrics"](folder / str(number)).read_text()
        assert 'num_gpu_blocks="4000"' in text
        text = text.replace('num_gpu_blocks="4000"', f'num_gpu_blocks="{count}"')
        paths.append(write(folder / f"server{number}.txt", text))
    return paths


def test_scrapes_of_servers_become_replicas_grouped_by_pool_size(tmp_path: Path) -> None:
    paths = scrapes(tmp_path, 4000, 4000, 3000)
    found = fleet(*paths)
    assert found is not None
    assert [each["replicas"] for each in found["group"]] == [2, 1]
    first, second = (each["memory"] for each in found["group"])
    assert first != second
    assert fleet(*paths[:2]) == {"replicas": 2, "router": {"kind": "round-robin"}}
    assert fleet(paths[0]) is None
    again = import_sources([str(each) for each in paths], GIVEN, tmp_path / "x.toml")
    assert again.contradictions == ()


def test_number_of_scrapes_must_equal_the_manifests_replicas(tmp_path: Path) -> None:
    paths = scrapes(tmp_path, 4000, 3000)
    manifest = write(tmp_path / "manifest.yaml", DEPLOYMENT.format(count=2, flags=""))
    found = fleet(manifest, *paths)
    assert found is not None
    assert len(found["group"]) == 2
    manifest.write_text(DEPLOYMENT.format(count=3, flags=""))
    with pytest.raises(InputError, match="as many servers"):
        fleet(manifest, *paths)


def test_engines_in_one_scrape_become_data_parallel_ranks(tmp_path: Path) -> None:
    (path,) = scrapes(tmp_path, 4000)
    ranks = [line for line in path.read_text().splitlines() if 'engine="0"' in line]
    assert ranks
    path.write_text(path.read_text() + "\n".join(ranks).replace('engine="0"', 'engine="1"') + "\n")
    assert fleet(path) == {"replicas": 2, "router": {"kind": "vllm-dp"}}


@pytest.mark.parametrize(
    ("flags", "lockstep"),
    [
        ("", True),
        (', "--no-async-scheduling"', True),
        (', "--no-async-scheduling", "--enable-expert-parallel"', True),
    ],
)
def test_imported_moe_ranks_share_experts_and_step_together(
    tmp_path: Path, flags: str, lockstep: bool
) -> None:
    given = {"gpu": "h200", "model": "qwen3-30b-a3b"}
    text = DEPLOYMENT.format(count=1, flags=f', "--data-parallel-size=2"{flags}')
    path = write(tmp_path / "manifest.yaml", text.replace("facebook/opt-125m", given["model"]))
    found = import_sources([str(path)], given, tmp_path / "x.toml")
    model, router = found.scenario["model"], found.scenario["fleet"]["router"]
    assert model["data_parallel_size"] == found.scenario["fleet"]["replicas"] == 2
    assert model.get("enable_expert_parallel", False) == ("expert" in flags)
    assert router == {"kind": "vllm-dp"} | ({"lockstep": True} if lockstep else {})
    assert lockstep != any("step together" in note for note in found.notes)
    arrivals = {"kind": "poisson", "rate_per_s": 20}
    load = {"kind": "synthetic", "num_requests": 40, "arrivals": arrivals}
    lengths = {name: {"kind": "fixed", "tokens": 50} for name in ("prompt", "output")}
    result = simulate(found.scenario | {"workload": load | lengths})
    assert result.fleets[0]["requests"]["finished"] == 40


def test_data_parallel_ranks_of_a_dense_model_are_independent_replicas(tmp_path: Path) -> None:
    text = DEPLOYMENT.format(count=1, flags=', "--data-parallel-size=2"')
    found = import_sources([str(write(tmp_path / "m.yaml", text))], GIVEN, tmp_path / "x.toml")
    assert "data_parallel_size" not in found.scenario["model"]
