"""Fit corrections of step times to a server's own logged steps, or to benchmarks of the server.

A correction adds a few numbers to the step times, and a front end (the API server before the
engine). A log of steps determines these numbers best (`learned_steps`). Without a log, one
benchmark is used, or several of the same server together.

Beyond its kernels a step takes a constant time, and a time per sequence. With prefill it takes a
further constant, and a time per prompt token. A client's TTFT includes the front end. One benchmark
determines each number poorly, so every number is drawn towards its usual value
(`kvsim.step_time.kernels.spread`). The fit simulates the scenario once per number, with the number
slightly larger. The result reproduces the measured TPOT and TTFT as well as possible.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.interchange.to_scenario.learned_steps import learned_steps
from kvsim.observed.logged_steps import LoggedStep
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS
from kvsim.readers.description import ServerSettings
from kvsim.results.measured import MeasuredSummary
from kvsim.results.summary import LatencySummary
from kvsim.scenario import Scenario
from kvsim.step_time.kernels.spread import FRONT_MS, spread_of

NOISE = {"tpot_s": 0.02, "ttft_s": 0.2}  # of a measured mean; prompts may have been cached
# The first request of a server may take seconds, which moves the mean of a few TTFTs.
STATISTICS = {"tpot_s": ("mean", "p50"), "ttft_s": ("p50", "mean")}
MOST_REQUESTS, REQUESTS_A_USER = 400, 4
STEPS_NOISE = 0.03  # of a TTFT, where the steps are known
# A load by which a scenario without one is simulated, to have its step times.
_ONE = {
    "kind": "synthetic",
    "num_requests": 1,
    "arrivals": {"kind": "at-once"},
    "prompt": {"kind": "fixed", "tokens": 16},
    "output": {"kind": "fixed", "tokens": 16},
}
RANGE = 3.0  # times fewer or more at once, where what was fitted is taken to hold
Floats = NDArray[np.float64]


class Learned(NamedTuple):
    """Fitted corrections: entries for the tables [step_time] and [front_end]. words says what they
    were fitted on.
    """

    step_time: dict[str, Any]
    front_end: dict[str, float]
    words: str


class _MeasuredTrial(NamedTuple):
    """A scenario to simulate with correction numbers. folder holds its trace file."""

    table: dict[str, Any]
    folder: Path

    def scenario(self, numbers: Mapping[str, float]) -> Scenario:
        step_time = self.table["step_time"] | numbers
        return Scenario.from_table(self.table | {"step_time": step_time}, self.folder)

    def figures(self, numbers: Mapping[str, float], measured: Sequence[tuple[str, str]]) -> Floats:
        """Natural logarithms of the simulated values of the measured latencies."""
        from kvsim.simulation import Simulation

        summary = Simulation(self.scenario(numbers)).result().runs[0].summary
        return np.log([getattr(summary[key], name) or np.nan for key, name in measured])


class MeasuredLoad(NamedTuple):
    """A scenario with a load, and the client's measured latencies. lines: those of the workload's
    trace file.
    """

    table: Mapping[str, Any]
    lines: Sequence[str] | None
    measured: MeasuredSummary | None

    def aims(self) -> list[tuple[str, str, float]]:
        """Latencies to reproduce: (latency, statistic, seconds); none without a load or a TPOT."""
        measured = self.measured
        if measured is None or measured.tpot_s is None or "workload" not in self.table:
            return []
        found = [
            (key, name, value)
            for key in NOISE
            for name, value in _first(getattr(measured, key), STATISTICS[key])
        ]
        return found if any(key == "tpot_s" for key, _, _ in found) else []


class ServerSteps(NamedTuple):
    """Steps in the server's own log, and the settings by which they are read."""

    steps: Sequence[LoggedStep]
    settings: ServerSettings


def learned(
    table: Mapping[str, Any],
    lines: Sequence[str] | None,
    measured: MeasuredSummary | None,
    logged: ServerSteps,
    notes: list[str],
) -> Learned | None:
    """Fit corrections to the steps in the server's log, else to the measured latencies; None
    without any.

    lines are those of the workload's trace file. InputError if the scenario cannot be simulated.
    """
    if "fleet" in table:
        return None
    if logged.steps and (found := _of_steps(table, lines, measured, logged, notes)) is not None:
        return found
    return learned_of_loads([MeasuredLoad(table, lines, measured)])


def learned_of_loads(loads: Sequence[MeasuredLoad]) -> Learned | None:
    """Fit one set of corrections to all measured loads of a server; None if none has a TPOT."""
    told = [(load, load.aims()) for load in loads]
    told = [(load, aims) for load, aims in told if aims]
    if not told:
        return None
    with TemporaryDirectory(prefix="kvsim-import-") as scratch:
        trials = []
        for at, (load, _) in enumerate(told):
            folder = Path(scratch) / str(at)
            folder.mkdir()
            trials.append(_MeasuredTrial(_thinned(load.table, load.lines, folder), folder))
        return _fitted(trials, [aims for _, aims in told])


def _of_steps(
    table: Mapping[str, Any],
    lines: Sequence[str] | None,
    measured: MeasuredSummary | None,
    logged: ServerSteps,
    notes: list[str],
) -> Learned | None:
    """Corrections fitted to the log's steps, and a front end fitted to a client's TTFT if there is
    one.
    """
    from kvsim.simulation import Simulation
    from kvsim.step_time.kernels.composed import KernelSteps
    from kvsim.validate.logged_samples import rows_of

    try:
        rows = rows_of(logged.steps, logged.settings, notes)
    except InputError as error:
        notes.append(f"step times are not fitted on the log's steps: {error}")
        return None
    timed = "workload" in table
    with TemporaryDirectory(prefix="kvsim-import-") as scratch:
        some = _thinned(table if timed else {**table, "workload": _ONE}, lines, Path(scratch))
        trial = _MeasuredTrial(some, Path(scratch))
        simulation = Simulation(trial.scenario({}))
        form, front = simulation.step_time, simulation.front_end
        if not isinstance(form, KernelSteps):
            return None
        found = learned_steps(form, [row.sample() for row in rows])
        if found is None:
            return None
        ends = dict(table.get("front_end", {}))
        aim = _first(measured.ttft_s, STATISTICS["ttft_s"]) if measured is not None else []
        said = ""
        if timed and aim and front is not None:
            ((name, value),) = aim
            (at,) = np.exp(trial.figures(found.numbers, [("ttft_s", name)]))
            request_ms = _front_ms(front.request_ms, 1e3 * (value - float(at)), 1e3 * value)
            ends["request_ms"] = round(request_ms, 2)
            said = f"; {request_ms:.3g} ms of each request are the front end's"
    return Learned(
        {**found.numbers, "fitted_on": found.words},
        ends,
        f"fitted on {found.words}. Their times are {found.after:.1%} off in the median, and were "
        f"{found.before:.1%} off before{said}",
    )


def _front_ms(usual_ms: float, more_ms: float, ttft_ms: float) -> float:
    """Front-end time in ms: the usual value plus a part of `more_ms`, the excess of the measured
    TTFT over the simulated one.
    """
    noise_ms = STEPS_NOISE * ttft_ms
    share = FRONT_MS**2 / (FRONT_MS**2 + noise_ms**2)
    return max(0.0, usual_ms + share * more_ms)


def _first(latency: LatencySummary | None, names: Sequence[str]) -> list[tuple[str, float]]:
    """(name, value) of the first of these statistics that was measured; empty if none was."""
    for name in names:
        value = getattr(latency, name, None)
        if value:
            return [(name, float(value))]
    return []


def _thinned(table: Mapping[str, Any], lines: Sequence[str] | None, folder: Path) -> dict[str, Any]:
    """The scenario with only as many requests as determine the means, and with a front end."""
    workload = dict(table["workload"])
    users = workload.get("arrivals", {}).get("num_users", 16)
    most = min(MOST_REQUESTS, max(REQUESTS_A_USER * users, 40))
    if workload["kind"] == "trace" and lines is not None:
        (folder / workload["path"]).write_text(
            "".join(f"{line}\n" for line in lines[:most]), "utf-8"
        )
    elif "num_requests" in workload:
        workload["num_requests"] = min(most, workload["num_requests"])
    return {**table, "workload": workload, "front_end": dict(table.get("front_end", {}))}


def _fitted(
    trials: Sequence[_MeasuredTrial], found: Sequence[Sequence[tuple[str, str, float]]]
) -> Learned | None:
    from kvsim.simulation import Simulation
    from kvsim.step_time.kernels.composed import KernelSteps

    simulation = Simulation(trials[0].scenario({}))
    form = simulation.step_time
    if not isinstance(form, KernelSteps) or simulation.front_end is None:
        return None
    front, spread = simulation.front_end, spread_of(form)
    sigmas = np.array([*spread.usual, FRONT_MS])
    least = np.array([*spread.least, -front.request_ms])
    measured = [[(key, name) for key, name, _ in aims] for aims in found]

    def figures(numbers: Mapping[str, float]) -> Floats:
        return np.concatenate([
            trial.figures(numbers, own) for trial, own in zip(trials, measured, strict=True)
        ])  # fmt: skip

    plain = figures({})
    moves = [
        figures({name: sigma + (name == "scale")}) - plain
        for name, sigma in spread.usual._asdict().items()
    ]
    every = [aim for aims in found for aim in aims]
    later = [
        np.log1p(FRONT_MS * PS_PER_MS / 1e12 / np.exp(at)) if key == "ttft_s" else 0.0
        for (key, _, _), at in zip(every, plain, strict=True)
    ]
    slopes = np.array([*moves, np.array(later)]).T
    aims = np.log([value for _, _, value in every])
    noise = np.diag([NOISE[key] ** 2 for key, _, _ in every])
    if not np.isfinite(slopes).all() or not np.isfinite(plain).all():
        return None
    drawn = slopes.T @ np.linalg.solve(slopes @ slopes.T + noise, aims - plain)
    scale, *others = np.maximum(drawn * sigmas, least).tolist()
    step, sequence, prompts, launch, token, request = others
    numbers = {
        "scale": round(1 + scale, 4),
        "overhead_us": round(step, 1),
        "sequence_us": round(sequence, 2),
        "prompts_us": round(prompts, 1),
        "prompt_token_us": round(token, 4),
        **({"prompt_launch_us": round(launch, 1)} if launch else {}),
    }
    after = figures(numbers)
    text = "; ".join(
        f"TPOT {1e3 * value:.3g} ms measured, {1e3 * before:.3g} before the fit and "
        f"{1e3 * now:.3g} after"
        for (key, _, value), before, now in zip(every, np.exp(plain), np.exp(after), strict=True)
        if key == "tpot_s"
    )
    on = _loads([trial.table["workload"] for trial in trials])
    ends = dict(trials[0].table["front_end"])
    return Learned(
        {**numbers, "fitted_on": on},
        {**ends, "request_ms": round(front.request_ms + request, 2)},
        f"fitted on your run{'s' * (len(trials) > 1)} ({on}): {text}",
    )


def _loads(workloads: Sequence[Mapping[str, Any]]) -> str:
    """Description of the fitted loads, with the range of users for which the fit is assumed to
    hold.
    """
    users = [each.get("arrivals", {}).get("num_users") for each in workloads]
    known = sorted({number for number in users if number is not None})
    if len(known) < len(set(users)):
        return "its recorded requests; holds for such loads"
    low, high = max(1, round(known[0] / RANGE)), round(known[-1] * RANGE)
    words = ", ".join(map(str, known[:-1])) + f" and {known[-1]}" if known[1:] else str(known[0])
    return f"{words} users; holds for {low} to {high}"


def learn(
    table: dict[str, Any],
    lines: Sequence[str] | None,
    measured: MeasuredSummary | None,
    logged: ServerSteps,
    notes: list[str],
) -> None:
    """Fit corrections, add them to the scenario's tables, and add a note."""
    try:
        found = learned(table, lines, measured, logged, notes)
    except InputError as error:
        notes.append(f"step times are not fitted on the benchmark: {error}")
        return
    if found is not None:
        notes.append(_put(found, table))


def learn_together(loads: Sequence[MeasuredLoad]) -> str | None:
    """Fit one set of corrections to all loads of one server, add it to the tables of each, and
    return the note; None if nothing was fitted.
    """
    if any("fleet" in load.table for load in loads):
        return None
    try:
        found = learned_of_loads(loads)
    except InputError as error:
        return f"step times are not fitted on the benchmarks: {error}"
    if found is None:
        return None
    return next(reversed([_put(found, load.table) for load in loads]))


def _put(found: Learned, table: Mapping[str, Any]) -> str:
    """Add the fitted numbers to the scenario `table`, and return the note."""
    assert isinstance(table, dict)
    table["step_time"] = table["step_time"] | found.step_time
    if found.front_end:
        table["front_end"] = found.front_end
    return f"{found.words} (--no-fit leaves step times as they are)"
