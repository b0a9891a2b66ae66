"""vLLM's host time per sequence, fitted to made-up points with known constants."""

from dataclasses import replace

import pytest

from evidence.points.estimate import Estimate
from evidence.points.fit_sequences import differences, sequence_entries, telling
from evidence.points.rows import Point

LAYER_US, DURING_US, BETWEEN_US = 12.5, 9.0, 40.0


def made(clients, overlapped=True, kind="llama", layers=32, isl=1024, kernels_ms=4.0):
    """A point with a host time of LAYER_US per layer and a known time per sequence."""
    host_us = LAYER_US * layers + clients * (DURING_US if overlapped else BETWEEN_US)
    point = Point(
        id="x",
        backend="vllm",
        model_path="m",
        system="h100_sxm",
        isl=isl,
        osl=512,
        silicon_ttft_ms=1.0,
        silicon_tpot_ms=kernels_ms + host_us / 1000,
    )
    version = "0.19.0" if overlapped else "0.12.0"
    shared = {"prompts": 0.0, "experts": 0.0, "shared": 0, "method": "", "device": "h100"}
    return Estimate(
        point=point,
        kernels_ms=kernels_ms,
        clients=clients,
        layers=layers,
        overlapped=overlapped,
        kind=kind,
        engine="vllm",
        version=version,
        **shared,
    )


def points():
    """Points of two architectures, each with one scheduling mode and two lengths."""
    return [
        made(clients, overlapped, kind, layers, isl)
        for overlapped, kind, layers in ((True, "llama", 32), (False, "qwen3", 64))
        for isl in (1024, 8192)
        for clients in (1, 8, 32, 128)
    ]


def test_fit_recovers_time_per_sequence_and_per_layer():
    found = {(each["kind"], each.get("before")): each for each in sequence_entries(points())}
    assert found.keys() == {(kind, age) for kind in ("llama", "qwen3") for age in (None, "0.14.0")}
    for (kind, before), entry in found.items():
        wanted = DURING_US if before is None else BETWEEN_US
        assert entry["sequence_us"] == pytest.approx(wanted, abs=0.02)
        layers = 32 if kind == "llama" else 64
        host_us = entry["step_us"] + layers * entry["layer_us"]
        assert host_us == pytest.approx(layers * LAYER_US, abs=1)
        assert entry["mean_error"] == pytest.approx(0, abs=1e-3)


def test_client_differences_pair_points_of_equal_server_and_length():
    assert len(differences(points())) == 4 * 3
    assert differences([made(8), made(8), made(16, isl=2048), made(32, overlapped=False)]) == []


def test_fit_excludes_points_faster_than_their_kernels_and_rare_architectures():
    slow = made(512, kernels_ms=4.0)
    slow = replace(slow, kernels_ms=2.1 * slow.point.silicon_tpot_ms)
    rare = [made(clients, kind="rare") for clients in (1, 2)]
    sglang = [replace(each, engine="sglang") for each in points()]
    assert telling([*points(), slow, *rare, *sglang]) == points()


def test_fit_without_points_has_no_entries():
    assert sequence_entries([]) == []
