"""Public traces as measured: rates, lengths and prefix reuse of the real files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kvsim.workload import WORKLOADS
from kvsim.workload.describe import describe
from kvsim.workload.traces.reader import read_trace

Find = Callable[[str], Path]
LENGTHS = ("mean", "p50", "p90", "p99", "max")


def check(path: Path, rows: int, arrivals: tuple[float, ...], *lengths: tuple[int, ...]) -> None:
    found = describe(read_trace(path), ())
    assert found["rows"] == rows
    measured = [found["arrivals"][k] for k in ("rate_per_s", "peak_10s_per_s", "gap_cv")]
    assert measured == [pytest.approx(value, abs=0.005) for value in arrivals]
    for key, expected in zip(("prompt_tokens", "output_tokens"), lengths, strict=True):
        assert [found[key][name] for name in LENGTHS] == [
            pytest.approx(value, abs=0.51) for value in expected
        ]


def test_azure_conversation_trace_has_published_statistics(real_trace: Find) -> None:
    check(
        real_trace("AzureLLMInferenceTrace_conv.csv"),
        19_366,
        (5.53, 11.2, 1.09),
        (1155, 1020, 2735, 4142, 14050),
        (211, 129, 424, 601, 1000),
    )


def test_azure_code_trace_has_published_statistics(real_trace: Find) -> None:
    check(
        real_trace("AzureLLMInferenceTrace_code.csv"),
        8_819,
        (2.57, 41.5, 13.15),
        (2048, 1469, 5188, 7436, 7437),
        (28, 13, 55, 251, 1899),
    )


def test_mooncake_conversation_trace_has_published_reuse(real_trace: Find) -> None:
    path = real_trace("conversation_trace.jsonl")
    check(
        path,
        12_031,
        (3.40, 7.3, 3.03),
        (12035, 6909, 27367, 85400, 126195),
        (343, 350, 597, 1119, 2000),
    )
    reuse = describe(read_trace(path))["reuse"]
    assert (reuse["unique_blocks"], reuse["block_references"]) == (182_790, 288_500)
    assert reuse["ideal_token_hit_ratio"] == pytest.approx(0.3736, abs=5e-5)
    assert reuse["ideal_block_hit_ratio"] == pytest.approx(0.3664, abs=5e-5)
    known = {"1000": 0.0454, "10000": 0.2157, "30000": 0.3322, "50000": 0.3615}
    assert reuse["lru_token_hit_ratio"] == {
        blocks: pytest.approx(ratio, abs=5e-5) for blocks, ratio in known.items()
    }


def test_mooncake_synthetic_trace_has_published_reuse(real_trace: Find) -> None:
    path = real_trace("synthetic_trace.jsonl")
    check(
        path,
        3_993,
        (3.91, 5.7, 1.01),
        (15325, 11587, 38611, 66456, 191378),
        (149, 69, 389, 768, 893),
    )
    reuse = describe(read_trace(path))["reuse"]
    assert (reuse["unique_blocks"], reuse["block_references"]) == (43_924, 121_877)
    known = {"1000": 0.0857, "10000": 0.4318, "30000": 0.6356, "50000": 0.6512}
    assert reuse["lru_token_hit_ratio"] == {
        blocks: pytest.approx(ratio, abs=5e-5) for blocks, ratio in known.items()
    }


def test_sharegpt_lengths_below_2048_have_published_means(real_trace: Find) -> None:
    path = real_trace("sharegpt_opt_lengths.csv")
    table = {
        "kind": "trace",
        "path": str(path),
        "drop_over": 2047,
        "arrivals": {"kind": "poisson", "rate_per_s": 2.0},
    }
    made = WORKLOADS.parse(table, "workload").generate(0, base=Path(), max_model_len=None)
    assert made.notes == ("dropped 6 of 79,731 requests over 2,047 tokens",)
    prompts = [request.prompt_tokens for request in made.requests]
    outputs = [request.output_tokens for request in made.requests]
    assert sum(prompts) / len(prompts) == pytest.approx(161.18, abs=0.005)
    assert sum(outputs) / len(outputs) == pytest.approx(338.00, abs=0.005)
