"""Fit a correction on the first part of a run: choose its form, and compute intervals."""

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.step_time.correction import NONE, WHOLE_PPM, Correction
from kvsim.validate.run.errors import latencies, recorded_times
from kvsim.validate.run.fitting.aims import Aims
from kvsim.validate.run.fitting.forms import FORMS, SERVER, Proportions, free_numbers
from kvsim.validate.run.fitting.judge import Judged, choose, judge
from kvsim.validate.run.fitting.parts import Parts
from kvsim.validate.run.fitting.search import FittedNumbers, Numbers, drawn, noises, search
from kvsim.validate.run.intervals import Interval, ends
from kvsim.validate.run.replay import Progress, Replay, ReplayEnd, replay
from kvsim.validate.run.step_times import StepTimes

Floats = NDArray[np.float64]


FEW = 30
RESAMPLES = 400
_LEAST_SHARE = 0.04  # of the mean step


class RunFit(NamedTuple):
    """A fitted correction.

    form is one of FORMS, or "server". requests is the number of requests used for the fit.
    intervals are 95 % ranges of each free number, by its field in Correction. judged has all forms
    that were tried. warnings are sentences to print.
    """

    form: str
    correction: Correction
    requests: int
    intervals: dict[str, Interval]
    judged: tuple[Judged, ...]
    warnings: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """The summary for `--json`; times in seconds."""
        return {
            "form": self.form,
            "requests": self.requests,
            **_in_seconds(self.correction._asdict()),
            "intervals_95": {
                key: [low, high]
                for key, low, high in (
                    (key, low, _in_seconds({name: span[1]})[key])
                    for name, span in self.intervals.items()
                    for key, low in _in_seconds({name: span[0]}).items()
                )
            },
            "judged": [one.summary() for one in self.judged],
            "warnings": list(self.warnings),
        }


def fit_run(
    run: ObservedRun,
    parts: Parts,
    times: StepTimes,
    form: str | None = None,
    progress: Progress | None = None,
) -> RunFit:
    """Fit `form` on the run's first part. None: "server", the numbers of a server beyond its
    kernels. Without kernels, None is the form of FORMS that best predicts held-out blocks of that
    part.

    progress is passed to each `replay`, with the number of the replay. InputError for an unknown
    form.
    """
    if form is None and times.spread is not None:
        form = SERVER
    known_forms = (*FORMS, *([SERVER] if times.spread is not None else ()))
    if form is not None and form not in known_forms:
        raise InputError(
            "no such form", where="--fit-form", value=form, limit=f"one of {', '.join(known_forms)}"
        )
    aims = Aims(run, parts)
    stop = ReplayEnd(parts.first, round(parts.end_s * PS_PER_S))
    known: dict[Correction, list[Floats]] = {}
    numbers_of_replays = count(1)

    def simulated(correction: Correction) -> Replay:
        what = f"fitting, replay {next(numbers_of_replays)}"
        return replay(run, times.corrected(correction), stop, progress, what)

    plain = simulated(NONE)
    known[NONE] = aims.simulated(plain)
    step_ps = latencies(run, recorded_times(run), parts.first)["tpot_s"]["mean"] * PS_PER_S
    decoded = plain.sequences - plain.chunks
    counts = (plain.tokens, plain.chunks, plain.sequences, plain.prompt_steps,
              plain.tokens - decoded)  # fmt: skip
    proportions = Proportions(step_ps, *(each / plain.steps for each in counts))

    def amounts(name: str, numbers: Numbers) -> list[Floats]:
        correction = proportions.correction(name, numbers)
        if correction not in known:
            known[correction] = aims.simulated(simulated(correction))
        return known[correction]

    def searched(name: str, starts: Sequence[Numbers]) -> FittedNumbers:
        lowest = proportions.lowest(name, times.shortest_ps)
        return search(aims, partial(amounts, name), lowest, starts)

    if form == SERVER:
        assert times.spread is not None
        usual, least = map(proportions.of_server, times.spread)
        found = {SERVER: drawn(aims, partial(amounts, SERVER), least, usual)}
    else:
        alone = searched("constant", [(0.0,)])
        found = {"constant": alone}
        for name, free in FORMS.items():
            if name != "constant" and form in (None, name):
                starts = _shared(alone.numbers[0]) if len(free) > 1 else [(0.0,)]
                found[name] = searched(name, starts)
    judged = judge(found if form is None else {form: found[form]}, aims)
    best = choose(judged)
    return RunFit(
        form=best.form,
        correction=proportions.correction(best.form, best.found.numbers),
        requests=len(parts.first),
        intervals=_intervals(best, aims, proportions),
        judged=tuple(judged),
        warnings=_warnings(len(parts.first)),
    )


def _shared(constant: float) -> list[Numbers]:
    """Starting points for two numbers: a constant, and a second number that takes over 0 to 100 %
    of it.

    All of them give the same mean step time.
    """
    size = max(abs(constant), _LEAST_SHARE)
    return [(constant - part * size, part * size) for part in (0.0, 0.25, 0.5, 0.75, 1.0)]


def _warnings(requests: int) -> tuple[str, ...]:
    if requests >= FEW:
        return ()
    return (
        f"only {requests} requests were answered in the part to fit on; below some {FEW} the fit "
        "and the choice of its form are uncertain: see the intervals, or take a larger share",
    )


def _intervals(best: Judged, aims: Aims, proportions: Proportions) -> dict[str, Interval]:
    """95 % ranges of the numbers by a bootstrap over requests and ticks, linearised near the fit.

    Each range is extended to contain the fit itself. The search ends a little before the optimum,
    and with hardly any noise no bootstrap sample would reach the point where it ended.
    """
    random = np.random.Generator(np.random.PCG64(aims.units["request"]))
    found, noise = best.found, noises(aims, best.found.simulated)
    drawn: list[Correction] = []
    while len(drawn) < RESAMPLES:
        times = {
            kind: np.bincount(random.integers(count, size=count), minlength=count).astype(float)
            for kind, count in aims.units.items()
            if count
        }
        weights = [times[aim.kind][aim.unit] for aim in aims.found]
        if all((aim.recorded * w).sum() > 0 for aim, w in zip(aims.found, weights, strict=True)):
            numbers = np.array(found.numbers) + found.better(aims, weights, noise)
            drawn.append(proportions.correction(best.form, tuple(numbers.tolist())))
    fitted = proportions.correction(best.form, found.numbers)
    intervals = {}
    for name in free_numbers(best.form):
        low, high = ends([getattr(correction, name) for correction in drawn])
        number = getattr(fitted, name)
        intervals[name] = (min(low, number), max(high, number))
    return intervals


def _in_seconds(fields: dict[str, float]) -> dict[str, float]:
    return {
        name.replace("_ps", "_s") if name.endswith("_ps") else "scale": value
        / (PS_PER_S if name.endswith("_ps") else WHOLE_PPM)
        for name, value in fields.items()
    }
