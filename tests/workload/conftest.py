"""One example of the options of every registered kind, so that contracts run over all of them."""

from pathlib import Path
from typing import Any

import pytest
from support.public_traces import public_trace

from kvsim.plumbing.registry import Registry
from kvsim.workload.arrivals import ARRIVALS
from kvsim.workload.durations import DURATIONS
from kvsim.workload.lengths import LENGTHS
from kvsim.workload.max_tokens import MAX_TOKENS

Table = dict[str, Any]

ARRIVAL_EXAMPLES: dict[str, Table] = {
    "poisson": {"rate_per_s": 4.0},
    "gamma": {"rate_per_s": 4.0, "cv": 3.0},
    "weibull": {"rate_per_s": 4.0, "shape": 0.7},
    "constant": {"rate_per_s": 3.0},
    "at-once": {},
    "gaps": {"gap": {"kind": "grid", "name": "azure-code.gap_s"}, "speedup": 2.0},
    "on-off": {
        "rate_per_s": 20.0,
        "off_rate_per_s": 1.0,
        "on": {"kind": "exponential", "mean_s": 5.0},
        "off": {"kind": "exponential", "mean_s": 15.0},
    },
    "piecewise": {
        "pieces": [
            {"duration_s": 10, "rate_per_s": 2},
            {"duration_s": 5, "rate_per_s": 0},
            {"duration_s": 5, "rate_per_s": 12},
        ]
    },
    "sinusoidal": {"rate_per_s": 5.0, "amplitude": 0.8, "period_s": 100.0},
    "closed-loop": {"num_users": 7, "think": {"kind": "exponential", "mean_s": 3.0}, "ramp_s": 14},
}
DURATION_EXAMPLES: dict[str, Table] = {
    "fixed": {"seconds": 1.5},
    "exponential": {"mean_s": 2.0},
    "lognormal": {"components": [{"mu": 1.0, "sigma": 0.5}]},
    "grid": {"quantiles": [0, 1, 4, 10]},
}
LENGTH_EXAMPLES: dict[str, Table] = {
    "fixed": {"tokens": 17},
    "uniform": {"min_tokens": 3, "max_tokens": 9},
    "geometric": {"mean": 6.5},
    "none": {},
    "lognormal": {
        "components": [
            {"weight": 2, "mu": 5.0, "sigma": 0.5},
            {"weight": 1, "mu": 3.0, "sigma": 1.0},
        ]
    },
    "grid": {"name": "sharegpt-opt.output_tokens"},
    "continuation": {"probabilities": [0.25, 0.5, 0.65]},
    "empirical": {"path": "lengths.csv", "column": "tokens"},
}
MAX_TOKENS_EXAMPLES: dict[str, Table] = {
    "none": {},
    "exact": {},
    "factor": {"factor": 1.5},
    "next-pow2": {},
    "fixed": {"tokens": 64},
}
EXAMPLES: list[tuple[Registry[Any], dict[str, Table]]] = [
    (ARRIVALS, ARRIVAL_EXAMPLES),
    (DURATIONS, DURATION_EXAMPLES),
    (LENGTHS, LENGTH_EXAMPLES),
    (MAX_TOKENS, MAX_TOKENS_EXAMPLES),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, (registry, examples) in zip(
        ("arrivals", "duration", "length", "max_tokens"), EXAMPLES, strict=True
    ):
        if name in metafunc.fixturenames:
            assert set(registry) == set(examples), f"every {registry.what} needs an example"
            tables = [{"kind": kind, **table} for kind, table in examples.items()]
            metafunc.parametrize(name, tables, ids=list(examples))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A scenario's folder, with a file of lengths in it."""
    (tmp_path / "lengths.csv").write_text("who,tokens\na,5\nb,50\nc,500\n")
    return tmp_path


@pytest.fixture
def real_trace() -> Any:
    """The path of a public trace's file by its name; the test is skipped where there is none."""

    return public_trace
