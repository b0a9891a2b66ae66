"""The fit recovers the formula that generated the samples, with its uncertainty."""

import numpy as np
import pytest

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS, PS_PER_S, PS_PER_US
from kvsim.step import Chunk, StepShape
from kvsim.step_time.calibrated import TOKEN_COSTS
from kvsim.step_time.calibrated.fit import errors_by_kind, fit
from kvsim.step_time.calibrated.formula import Formula, FormulaTime, Terms
from kvsim.step_time.calibrated.hinge import Hinge
from kvsim.step_time.calibrated.samples import Sample, kind_of
from kvsim.step_time.calibrated.staircase import Staircase
from kvsim.step_time.calibrated.table import BrokenLine

TERMS = Terms(
    decode_seq_ps=20 * PS_PER_US,
    decode_seq_mixed_ps=50 * PS_PER_US,
    context_token_ps=150_000,
    context_token_mixed_ps=340_000,
    longest_excess_token_ps=90_000,
    longest_excess_token_mixed_ps=60_000,
    attention_pair_ps=3434,
    prefill_context_token_ps=970_000,
)
HINGE = Formula(
    token_cost=Hinge(base_ps=18 * PS_PER_MS, knee_tokens=144, per_token_ps=89 * PS_PER_US),
    terms=TERMS,
)


def shapes(seed: int, count: int = 400) -> list[StepShape]:
    """Random steps of all three kinds, on token counts that include 144."""
    rng = np.random.default_rng(seed)
    found = []
    for index in range(count):
        chunks: tuple[Chunk, ...] = ()
        if index % 3:
            new = int(rng.choice([16, 64, 100, 144, 300, 512, 1000, 2048]))
            chunks = (Chunk(new, int(rng.choice([0, 256, 4096]))),)
        seqs = int(rng.choice([1, 2, 4, 8, 16, 32, 64, 96, 144, 200, 256])) if index % 3 != 1 else 0
        contexts = rng.integers(10, rng.choice([50, 500, 5000]), size=seqs)
        found.append(StepShape(chunks, seqs, int(contexts.sum()), int(contexts.max(initial=0))))
    return found


def samples_of(formula: Formula, noise: float = 0.0, seed: int = 0) -> list[Sample]:
    time, rng = FormulaTime(formula), np.random.default_rng(seed)
    return [
        Sample(shape, time.step_ps(shape) / PS_PER_S * (1 + noise * float(rng.standard_normal())))
        for shape in shapes(seed)
    ]


def test_fit_recovers_linear_coefficients() -> None:
    line = Hinge(base_ps=18 * PS_PER_MS, knee_tokens=0, per_token_ps=89 * PS_PER_US)
    found = fit(samples_of(Formula(token_cost=line, terms=TERMS)), forms=["hinge"], resamples=2)
    assert found.label == "hinge at 0 tokens and longest context"
    assert isinstance(found.formula.token_cost, Hinge)
    assert found.formula.token_cost.base_ps == pytest.approx(line.base_ps, rel=1e-6)
    assert found.formula.token_cost.per_token_ps == pytest.approx(line.per_token_ps, rel=1e-6)
    for name, value in TERMS:
        assert getattr(found.formula.terms, name) == pytest.approx(value, rel=1e-3), name
    assert max(errors.max for errors in found.held_out.values()) < 1e-6


def test_fit_recovers_a_knee_to_the_nearest_measured_token_count() -> None:
    found = fit(samples_of(HINGE), forms=["hinge"], resamples=2)
    assert isinstance(found.formula.token_cost, Hinge)
    assert abs(found.formula.token_cost.knee_tokens - 144) < 10
    assert found.formula.token_cost.per_token_ps == pytest.approx(89 * PS_PER_US, rel=0.01)
    assert max(errors.mape for errors in found.held_out.values()) < 0.005


def test_staircase_form_wins_on_tiled_steps() -> None:
    stairs = Staircase(
        tile_tokens=128,
        levels_ps=tuple(PS_PER_MS * (10 + 7 * tile) for tile in range(18)),
        per_token_ps=0,
    )
    found = fit(samples_of(Formula(token_cost=stairs, terms=TERMS)), resamples=2)
    assert found.label.startswith("staircase of 128 tokens")
    assert found.held_out["mixed"].p90 < 1e-6  # a tile no other shape has is out of reach
    assert found.tried[0].form == "staircase"


@pytest.mark.parametrize("form", list(TOKEN_COSTS))
def test_held_out_error_equals_the_noise_and_intervals_contain_the_truth(form: str) -> None:
    found = fit(samples_of(HINGE, noise=0.03), forms=[form])
    for kind, errors in found.held_out.items():
        # E|N(0, 0.03)| = 0.03 * sqrt(2 / pi) = 2.4 %
        assert 0.02 < errors.mape < 0.045, kind
        assert errors.mape >= 0.95 * found.residuals[kind].mape, kind
    low, high = found.intervals.terms["context_token_ps"]
    assert low < TERMS.context_token_ps < high
    assert low > 0.8 * high


def test_the_same_seed_gives_the_same_fit() -> None:
    samples = samples_of(HINGE, noise=0.03)
    assert fit(samples, resamples=5, seed=7) == fit(samples, resamples=5, seed=7)


def test_held_out_error_exceeds_residual_of_an_overfitted_form() -> None:
    """A form with a knot per token count repeats its own samples; held-out steps find it out."""
    samples = samples_of(HINGE, noise=0.2)[:60]
    found = fit(samples, forms=["table"], resamples=2)
    assert sum(e.mape * e.n for e in found.held_out.values()) > 1.1 * sum(
        e.mape * e.n for e in found.residuals.values()
    )


def test_gap_in_measured_token_counts_is_interpolated() -> None:
    """Nothing measured between 300 and 2,000 tokens: every form must price 1,000 in between."""
    samples = [s for s in samples_of(HINGE) if not 450 < tokens(s.shape) < 1950]
    for form in TOKEN_COSTS:
        cost = fit(samples, forms=[form], resamples=2).formula.token_cost
        below, inside, above = cost.ps(400), cost.ps(1100), cost.ps(2040)
        assert below < inside < above, form
        middle = (below + above) / 2
        assert inside == pytest.approx(middle, rel=0.15), form


def tokens(shape: StepShape) -> int:
    return shape.num_decode + shape.prefill_tokens


def test_without_mixed_samples_mixed_terms_equal_pure_decode_terms() -> None:
    samples = [s for s in samples_of(HINGE) if kind_of(s.shape) != "mixed"]
    found = fit(samples, forms=["hinge"], resamples=2)
    assert found.formula.terms.context_token_mixed_ps == found.formula.terms.context_token_ps
    assert found.domain.outside(StepShape((Chunk(64, 0),), 4, 400, 100))


def test_fit_reports_errors_on_a_given_held_out_set() -> None:
    fresh = samples_of(HINGE, seed=1)
    slower = [Sample(s.shape, s.seconds * 1.25) for s in fresh]
    for errors in errors_by_kind(HINGE, slower).values():
        assert errors.mape == pytest.approx(0.2)
        assert errors.bias == pytest.approx(-0.2)


def test_too_few_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"too few different steps .* got 5; limit at least 10"):
        fit(samples_of(HINGE)[:5])


def test_calibration_domain_is_listed_by_kind_of_step() -> None:
    domain = fit(samples_of(HINGE), forms=["hinge"], resamples=2).domain
    inside = StepShape((), 16, 16_000, 2000)
    assert not domain.outside(inside)
    assert domain.outside(StepShape((), 282, 100_000, 2000))
    assert domain.outside(StepShape((Chunk(2300, 0),), 0, 0))


@pytest.mark.parametrize("form", list(TOKEN_COSTS))
def test_built_form_equals_its_regression_columns(form: str) -> None:
    """A built form computes the sum of its regression columns times the coefficients."""
    seen = np.array([1, 5, 64, 65, 128, 300, 301, 900, 2048])
    asked = np.array([1, 2, 63, 64, 65, 129, 300, 700, 2047, 2048, 3000])
    offered = list(TOKEN_COSTS.get(form).candidates(seen))
    assert offered
    for candidate in offered:
        columns = candidate.columns(asked)
        assert (columns >= 0).all()
        coefficients = np.arange(1, columns.shape[1] + 1) * 1e6
        cost = candidate.build(coefficients)
        told = [cost.ps(int(at)) for at in asked]
        assert told == sorted(told)
        assert told == pytest.approx((columns @ coefficients).tolist(), rel=1e-8, abs=10), (
            candidate.label
        )


def test_table_form_interpolates_linearly() -> None:
    table = BrokenLine(knots_tokens=(10, 20, 40), values_ps=(100, 200, 600))
    assert [table.ps(at) for at in (1, 10, 15, 20, 30, 40, 50)] == [
        100, 100, 150, 200, 400, 600, 800,
    ]  # fmt: skip
