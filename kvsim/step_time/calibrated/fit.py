"""Find the form and the coefficients that predict held-out steps best.

Every step weighs by its relative error, and every kind of step (decode, prefill, mixed) weighs the
same however many samples it has. Coefficients are nonnegative, then rounded to integer picoseconds.
The form of g is chosen by k-fold prediction of whole shapes that the fit has not seen.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.step_time.calibrated import TOKEN_COSTS
from kvsim.step_time.calibrated.domain import Domain
from kvsim.step_time.calibrated.fitted import Errors, Fit, Intervals, TokenInterval, Tried
from kvsim.step_time.calibrated.formula import Formula, FormulaTime
from kvsim.step_time.calibrated.samples import KINDS, Kind, Sample, kind_of
from kvsim.step_time.calibrated.solve import Normal
from kvsim.step_time.calibrated.terms import Steps, build_terms
from kvsim.step_time.calibrated.token_cost import Candidate

Floats = NDArray[np.float64]


FEWEST_SHAPES = 10
LEVEL = 0.95
_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)  # of the token counts, where g gets an interval


class _Trial(NamedTuple):
    """One shape of one form, with or without the term of the longest context."""

    form: str
    candidate: Candidate
    with_longest: bool

    @property
    def label(self) -> str:
        return self.candidate.label + (" and longest context" if self.with_longest else "")


class _Scored(NamedTuple):
    """A trial and the relative errors [n] of the steps, each held out of the fit."""

    trial: _Trial
    errors: Floats
    by_kind: dict[Kind, float]

    @property
    def score(self) -> float:
        return sum(self.by_kind.values()) / len(self.by_kind)


def fit(
    samples: Sequence[Sample],
    *,
    forms: Sequence[str] | None = None,
    folds: int = 5,
    resamples: int = 100,
    seed: int = 0,
) -> Fit:
    """Fit step times to `samples`.

    forms: names out of TOKEN_COSTS to choose from, None for all. folds: parts of the shapes, each
    predicted by a fit on the others. resamples: of the bootstrap. InputError if the samples have
    fewer than FEWEST_SHAPES different shapes.
    """
    steps = Steps.of(samples)
    shapes = int(steps.group.max(initial=-1)) + 1
    if shapes < FEWEST_SHAPES:
        raise InputError(
            "too few different steps to fit some and hold out others",
            value=shapes,
            limit=f"at least {FEWEST_SHAPES}",
            remedy="vary prefill tokens and decode sequences",
        )
    fold = _shuffled(shapes, seed)[steps.group] % folds
    scored = [_score(trial, steps, fold) for trial in _trials(steps, forms or tuple(TOKEN_COSTS))]
    best = min(scored, key=lambda entry: entry.score)
    formula = _fitted(best.trial, steps, _weights(steps))
    return Fit(
        label=best.trial.label,
        formula=formula,
        domain=Domain.of(sample.shape for sample in samples),
        intervals=_intervals(best.trial, steps, shapes, resamples, seed),
        residuals=errors_by_kind(formula, samples),
        held_out=Errors.by_kind(best.errors.tolist(), steps.kinds),
        folds=folds,
        seed=seed,
        tried=_best_of_each_form(scored),
    )


def held_out_errors(found: Fit, samples: Sequence[Sample]) -> list[float]:
    """Relative errors of the samples of `found`, in their order, each predicted by a fit without
    its fold: `found.held_out` summarises them.
    """
    steps = Steps.of(samples)
    fold = _shuffled(int(steps.group.max()) + 1, found.seed)[steps.group] % found.folds
    forms = (TOKEN_COSTS.name_of(found.formula.token_cost),)
    trial = next(trial for trial in _trials(steps, forms) if trial.label == found.label)
    errors: list[float] = _score(trial, steps, fold).errors.tolist()
    return errors


def errors_by_kind(formula: Formula, samples: Sequence[Sample]) -> dict[Kind, Errors]:
    """Relative errors of the integer formula on samples (a held-out set), by kind of step."""
    time = FormulaTime(formula)
    errors = [time.step_ps(sample.shape) / (sample.seconds * PS_PER_S) - 1.0 for sample in samples]
    return Errors.by_kind(errors, [kind_of(sample.shape) for sample in samples])


def _trials(steps: Steps, forms: Sequence[str]) -> Iterator[_Trial]:
    for name in forms:
        for candidate in TOKEN_COSTS.get(name, "--form").candidates(steps.tokens):
            for with_longest in (False, True) if steps.knows_longest else (False,):
                yield _Trial(name, candidate, with_longest)


def _shuffled(count: int, seed: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.PCG64(seed)).permutation(count)


def _weights(steps: Steps) -> Floats:
    """Squared relative errors, each kind of the same total weight."""
    counts = {kind: steps.kinds.count(kind) for kind in KINDS}
    weights: Floats = 1.0 / (steps.ps**2 * np.array([counts[kind] for kind in steps.kinds]))
    return weights


def _design(trial: _Trial, steps: Steps) -> tuple[Floats, int, tuple[tuple[str, ...], ...]]:
    """Regressors [n, p], how many of them are g's, and the fields of the others."""
    g = trial.candidate.columns(steps.tokens)
    others, fields = steps.columns(with_longest=trial.with_longest)
    return np.hstack([g, others]), g.shape[1], fields


def _fitted(trial: _Trial, steps: Steps, weights: Floats) -> Formula:
    columns, count, fields = _design(trial, steps)
    coefficients = Normal.of(columns, steps.ps, weights).solve()
    return Formula(
        token_cost=trial.candidate.build(coefficients[:count]),
        terms=build_terms(coefficients[count:], fields),
    )


def _score(trial: _Trial, steps: Steps, fold: NDArray[np.int64]) -> _Scored:
    columns, _, _ = _design(trial, steps)
    weights = _weights(steps)
    members = [fold == number for number in np.unique(fold)]
    parts = [Normal.of(columns[rows], steps.ps[rows], weights[rows]) for rows in members]
    errors = np.empty(len(steps.ps))
    for out, rows in enumerate(members):
        rest = Normal.total(part for number, part in enumerate(parts) if number != out)
        errors[rows] = columns[rows] @ rest.solve() / steps.ps[rows] - 1.0
    kinds = np.array(steps.kinds)
    mape = {kind: float(np.abs(errors[kinds == kind]).mean()) for kind in KINDS if kind in kinds}
    return _Scored(trial, errors, mape)


def _best_of_each_form(scored: Sequence[_Scored]) -> tuple[Tried, ...]:
    best: dict[str, _Scored] = {}
    for entry in sorted(scored, key=lambda entry: entry.score):
        best.setdefault(entry.trial.form, entry)
    return tuple(
        Tried(
            form=form,
            label=entry.trial.label,
            held_out_mape={kind: round(value, 6) for kind, value in entry.by_kind.items()},
        )
        for form, entry in best.items()
    )


def _intervals(trial: _Trial, steps: Steps, shapes: int, resamples: int, seed: int) -> Intervals:
    random = np.random.Generator(np.random.PCG64(seed))
    columns, count, fields = _design(trial, steps)
    weights = _weights(steps)
    ranks = np.array([round(at * (len(steps.tokens) - 1)) for at in _QUANTILES])
    tokens = np.unique(np.sort(steps.tokens)[ranks])
    at_tokens = trial.candidate.columns(tokens)
    terms, g = [], []
    for _ in range(resamples):
        drawn = np.bincount(random.integers(shapes, size=shapes), minlength=shapes)
        times_drawn = drawn[steps.group]
        coefficients = Normal.of(columns, steps.ps, weights * times_drawn).solve()
        terms.append(coefficients[count:])
        g.append(at_tokens @ coefficients[:count])
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    term_low, term_high = np.quantile(terms, ends, axis=0).round().astype(int).tolist()
    g_low, g_high = np.quantile(g, ends, axis=0).round().astype(int).tolist()
    return Intervals(
        level=LEVEL,
        resamples=resamples,
        terms={
            name: (low, high)
            for names, low, high in zip(fields, term_low, term_high, strict=True)
            for name in names
        },
        token_cost=tuple(
            TokenInterval(tokens=at, low_ps=low, high_ps=high)
            for at, low, high in zip(tokens.tolist(), g_low, g_high, strict=True)
        ),
    )
