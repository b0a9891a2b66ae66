import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsim.plumbing.errors import InputError
from kvsim.workload import grids
from kvsim.workload.durations import DURATIONS
from kvsim.workload.lengths import LENGTHS
from kvsim.workload.max_tokens import MAX_TOKENS
from kvsim.workload.random import generator

N = 200_000


def draw(table: dict[str, Any], base: Path = Path(), count: int = N, seed: int = 3) -> np.ndarray:
    return LENGTHS.parse(table, "lengths").draw(count, generator(seed, "test"), base)


def test_every_length_distribution_draws_integers_and_repeats_by_seed(
    length: dict[str, Any], base: Path
) -> None:
    values = draw(length, base, 1000)
    assert values.dtype == np.int64
    assert len(values) == 1000
    assert values.min() >= LENGTHS.get(length["kind"]).least
    assert (values == draw(length, base, 1000)).all()


def test_every_duration_distribution_is_finite_and_repeats_by_seed(
    duration: dict[str, Any],
) -> None:
    options = DURATIONS.parse(duration, "think")
    values = options.draw_s(1000, generator(1, "test"))
    assert np.isfinite(values).all()
    assert values.min() >= 0
    assert (values == options.draw_s(1000, generator(1, "test"))).all()


def test_every_max_tokens_policy_declares_positive_limits(max_tokens: dict[str, Any]) -> None:
    policy = MAX_TOKENS.parse(max_tokens, "max_tokens")
    for output in (1, 2, 3, 64, 1000):
        declared = policy.declared(output)
        assert declared is None or declared >= 1
        if max_tokens["kind"] not in ("none", "fixed"):
            assert declared is not None
            assert declared >= output


def test_next_power_of_two_policy_declares_powers_of_two() -> None:
    policy = MAX_TOKENS.get("next-pow2")()
    assert [policy.declared(n) for n in (1, 2, 3, 4, 5, 1024, 1025)] == [
        1, 2, 4, 4, 8, 1024, 2048,
    ]  # fmt: skip


def test_a_lognormal_mixture_has_its_closed_form_mean() -> None:
    # Azure code, prompts: the fit of its trace
    parts = [(0.308, 5.529, 1.311), (0.692, 7.651, 0.723)]
    mean = sum(w * math.exp(mu + s * s / 2) for w, mu, s in parts)
    components = [{"weight": w, "mu": mu, "sigma": s} for w, mu, s in parts]
    values = draw({"kind": "lognormal", "components": components})
    assert values.mean() == pytest.approx(mean, rel=0.02)


def test_geometric_lengths_have_their_mean_and_deviation() -> None:
    values = draw({"kind": "geometric", "mean": 4.0})
    assert values.mean() == pytest.approx(4, rel=0.01)
    assert values.std() == pytest.approx(math.sqrt(4 * 3), rel=0.02)


def test_uniform_lengths_include_both_ends() -> None:
    values = draw({"kind": "uniform", "min_tokens": 3, "max_tokens": 5})
    assert np.unique(values).tolist() == [3, 4, 5]
    assert values.mean() == pytest.approx(4, abs=0.01)


def test_continuation_has_its_closed_form_mean() -> None:
    # 1 + p1 + p1 p2 + p1 p2 p2 + ... with p1 = .5 and p2 = .25 for ever after
    values = draw({"kind": "continuation", "probabilities": [0.5, 0.25]})
    assert values.mean() == pytest.approx(1 + 0.5 / (1 - 0.25), abs=0.01)


def test_quantile_grid_is_interpolated_linearly() -> None:
    values = draw({"kind": "grid", "quantiles": [10, 20, 100], "probabilities": [0, 0.5, 1]})
    assert values.mean() == pytest.approx(0.5 * 15 + 0.5 * 60, rel=0.01)
    assert np.quantile(values, 0.5) == pytest.approx(20, abs=1)


def test_empirical_lengths_are_drawn_from_the_file(base: Path) -> None:
    table = {"kind": "empirical", "path": "lengths.csv", "column": "tokens"}
    values = draw(table, base)
    assert set(values.tolist()) == {5, 50, 500}
    assert values.mean() == pytest.approx(185, rel=0.02)
    with pytest.raises(InputError, match=r"lengths.csv, line 1: no such column.*who, tokens"):
        draw({**table, "column": "token"}, base)
    (base / "lengths.csv").write_text("tokens\n5\n0\n")
    with pytest.raises(InputError, match=r"lengths\.csv, line 3: tokens is out of range"):
        draw(table, base)


@pytest.mark.parametrize(
    ("column", "mean", "tolerance"),
    [
        ("sharegpt-opt.prompt_tokens", 161.18, 0.005),
        ("sharegpt-opt.output_tokens", 338.00, 0.005),
        ("azure-conv.prompt_tokens", 1155, 0.005),
        ("azure-conv.output_tokens", 211, 0.005),
        ("azure-code.prompt_tokens", 2048, 0.005),
        ("mooncake-conversation.prompt_tokens", 12035, 0.005),
        ("mooncake-conversation.output_tokens", 343, 0.005),
        ("coding-agents.prompt_tokens", 118296, 0.01),
    ],
)
def test_shipped_grids_have_the_measured_means(column: str, mean: float, tolerance: float) -> None:
    points, values = (np.array(side) for side in grids.named(column, "test"))
    area = float((np.diff(points) * (values[1:] + values[:-1]) / 2).sum())
    assert area == pytest.approx(mean, rel=tolerance)


def test_shipped_grids_can_all_be_drawn_from() -> None:
    assert len(grids.names()) >= 10
    for name in grids.names():
        assert grids.source(name)
        kind = DURATIONS if name.endswith("_s") else LENGTHS
        kind.parse({"kind": "grid", "name": name}, "test")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "nowhere.prompt_tokens"}, "unknown grid"),
        ({}, "either a name or quantiles"),
        ({"quantiles": [1]}, "at least 2 quantiles"),
        ({"quantiles": [5, 4]}, "must not fall"),
        ({"quantiles": [1, 2, 3], "probabilities": [0, 0.7, 0.6]}, "must rise from 0 to 1"),
        ({"quantiles": [1, 2, 3], "probabilities": [0, 1]}, "one for each"),
    ],
)
def test_broken_grids_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LENGTHS.parse({"kind": "grid", **table}, "workload.prompt")


def test_a_mixture_without_weight_is_refused() -> None:
    with pytest.raises(InputError, match="shares sum to zero"):
        draw({"kind": "lognormal", "components": [{"mu": 1, "sigma": 1, "weight": 0}]}, count=5)
    with pytest.raises(InputError, match="components"):
        draw({"kind": "lognormal", "components": []}, count=5)
