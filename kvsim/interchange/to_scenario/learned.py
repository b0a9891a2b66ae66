"""Fit corrections of step times to a server's own logged steps, or to a benchmark of the server.

The corrections are a few numbers on top of the step times, and the time of a front end (the API
server before the engine). A log of steps determines them best (`learned_steps`). Without one, a
benchmark is used.

Beyond its kernels a step has a constant time, a time per sequence, and a time if it has prefill. A
client's TTFT starts before the engine's. One benchmark determines each of these poorly. So every
number is drawn towards its usual value for such servers, as in ridge regression, weighted by the
usual spread. For the fit the scenario is simulated once per number, with the number slightly
larger. The result reproduces the measured TPOT and TTFT as well as possible.
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
from kvsim.plumbing.units import PS_PER_MS, PS_PER_US
from kvsim.results.measured import MeasuredSummary
from kvsim.results.summary import LatencySummary
from kvsim.scenario import Scenario

# How far servers of one kind lie apart (standard deviations), on the sources of fit_prior.
SCALE = 0.1
STEP_SHARE, STEP_US = 0.35, 300.0
SEQUENCE_US = 20.0
PROMPTS_SHARE, PROMPTS_US = 0.3, 4000.0
FRONT_MS = 10.0
NOISE = {"tpot_s": 0.02, "ttft_s": 0.2}  # of a measured mean; prompts may have been cached
# The first request of a server may take seconds, which moves the mean of a few TTFTs.
STATISTICS = {"tpot_s": ("mean", "p50"), "ttft_s": ("p50", "mean")}
MOST_REQUESTS, REQUESTS_A_USER = 400, 4
NAMES = ("scale", "overhead_us", "sequence_us", "prompts_us")
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


class ServerSteps(NamedTuple):
    """Steps in the server's own log. pool_tokens, the KV pool's size, converts logged usage to
    context length; None: unknown.
    """

    steps: Sequence[LoggedStep]
    pool_tokens: int | None


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
    if measured is None or "workload" not in table:
        return None
    aims = [
        (key, name, value)
        for key in NOISE
        for name, value in _first(getattr(measured, key), STATISTICS[key])
        if key != "ttft_s" or measured.tpot_s is not None
    ]
    if not any(key == "tpot_s" for key, _, _ in aims):
        return None
    with TemporaryDirectory(prefix="kvsim-import-") as scratch:
        return _fitted(_MeasuredTrial(_thinned(table, lines, Path(scratch)), Path(scratch)), aims)


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
        rows = rows_of(logged.steps, logged.pool_tokens, notes)
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


def _fitted(trial: _MeasuredTrial, found: Sequence[tuple[str, str, float]]) -> Learned | None:
    from kvsim.simulation import Simulation
    from kvsim.step_time.kernels.composed import KernelSteps

    simulation = Simulation(trial.scenario({}))
    form = simulation.step_time
    if not isinstance(form, KernelSteps) or simulation.front_end is None:
        return None
    host, front = form.host, simulation.front_end
    step_us, prompts_us = host.step_ps / PS_PER_US, host.prompts_ps / PS_PER_US
    sigmas = np.array([
        SCALE, STEP_SHARE * step_us + STEP_US, SEQUENCE_US, PROMPTS_SHARE * prompts_us + PROMPTS_US,
        FRONT_MS,
    ])  # fmt: skip
    least = np.array([
        -0.5, -0.9 * step_us, -host.sequence_ps / PS_PER_US, -prompts_us, -front.request_ms,
    ])  # fmt: skip
    measured = [(key, name) for key, name, _ in found]
    plain = trial.figures({}, measured)
    moves = [
        trial.figures({name: float(sigma) + (name == "scale")}, measured) - plain
        for name, sigma in zip(NAMES, sigmas, strict=False)
    ]
    later = [
        np.log1p(FRONT_MS * PS_PER_MS / 1e12 / np.exp(at)) if key == "ttft_s" else 0.0
        for (key, _), at in zip(measured, plain, strict=True)
    ]
    slopes = np.array([*moves, np.array(later)]).T
    aims = np.log([value for _, _, value in found])
    noise = np.diag([NOISE[key] ** 2 for key, _ in measured])
    if not np.isfinite(slopes).all() or not np.isfinite(plain).all():
        return None
    drawn = slopes.T @ np.linalg.solve(slopes @ slopes.T + noise, aims - plain)
    scale, *others = np.maximum(drawn * sigmas, least).tolist()
    step, sequence, prompts, request = others
    numbers = {
        "scale": round(1 + scale, 4),
        "overhead_us": round(step, 1),
        "sequence_us": round(sequence, 2),
        "prompts_us": round(prompts, 1),
    }
    after = trial.figures(numbers, measured)
    text = "; ".join(
        f"TPOT {1e3 * value:.3g} ms measured, {1e3 * before:.3g} before the fit and "
        f"{1e3 * now:.3g} after"
        for (key, _, value), before, now in zip(found, np.exp(plain), np.exp(after), strict=True)
        if key == "tpot_s"
    )
    on = _load(trial.table["workload"])
    return Learned(
        {**numbers, "fitted_on": on},
        {**trial.table["front_end"], "request_ms": round(front.request_ms + request, 2)},
        f"fitted on your run ({on}): {text}",
    )


def _load(workload: Mapping[str, Any]) -> str:
    """The load in words, with the range of loads for which the fit is assumed to hold."""
    users = workload.get("arrivals", {}).get("num_users")
    if users is None:
        return "its recorded requests; holds for such loads"
    low, high = max(1, round(users / RANGE)), round(users * RANGE)
    return f"{users} users; holds for {low} to {high}"


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
        table["step_time"] = table["step_time"] | found.step_time
        if found.front_end:
            table["front_end"] = found.front_end
        notes.append(f"{found.words} (--no-fit leaves step times as they are)")
