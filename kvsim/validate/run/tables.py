"""Tables for a comparison's report page: fit, log curves, and recorded steps."""

from typing import Any, NamedTuple

from kvsim.plumbing.units import PS_PER_US
from kvsim.report.numbers import count
from kvsim.step_time.correction import WHOLE_PPM
from kvsim.validate.run.comparison import StepByStep
from kvsim.validate.run.curves import SERIES, Curves
from kvsim.validate.run.fitting.fit import RunFit
from kvsim.validate.run.fitting.forms import SERVER, free_numbers
from kvsim.validate.run.intervals import Interval
from kvsim.validate.run.memory import MemoryErrors
from kvsim.validate.run.steps import LockStep, StepErrors

_SIDES = ("recorded", "simulated")


class TextTable(NamedTuple):
    """A table of text cells; the first cell of a row is the row's label."""

    title: str
    note: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def signed(fraction: float) -> str:
    """A fraction as text with a sign, such as `+1.2 %`; `0.0 %` has none."""
    text = f"{100 * fraction:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text


def between(span: Interval | None) -> str:
    """An interval of errors as text, such as `-1.0 % to +2.0 %`; "" for None."""
    return "" if span is None else f"{signed(span[0])} to {signed(span[1])}"


_TERMS = {
    "constant_ps": "{} a step",
    "token_ps": "{} a token",
    "chunk_ps": "{} a prefill chunk",
    "scale_ppm": "all times {}",
    "sequence_ps": "{} a sequence",
    "prompts_ps": "{} a step with prompts",
    "prompt_launch_ps": "{} of launches with prompts",
    "prompt_token_ps": "{} a prompt token",
}
MANY = 3  # numbers from which a list has commas
_CHOSEN = (
    "Each form was judged on a third of the part that it was not fitted on: its misses in units of "
    "their noise, squared, and in per cent. Of forms within a standard error of the best, the one "
    "with the fewest numbers is taken."
)
_DRAWN = (
    "Each number is drawn towards that of servers of this kind. The form was judged on each third "
    "of the part with a fit on the others: its misses in units of their noise, squared, and in per "
    "cent."
)


def in_words(fit: RunFit) -> str:
    """The fitted numbers as text, such as `392 us a step`."""
    found = [_number(name, getattr(fit.correction, name)) for name in free_numbers(fit.form)]
    return " and ".join(found) if len(found) < MANY else f"{', '.join(found[:-1])} and {found[-1]}"


def _number(name: str, value: float) -> str:
    return _TERMS[name].format(_amount(name, value))


def _amount(name: str, value: float) -> str:
    if name == "scale_ppm":
        return f"{100 * (value / WHOLE_PPM - 1):+.2f} %"
    return f"{value / PS_PER_US:,.4g} us"


def fit_table(fit: RunFit) -> TextTable:
    """Table of the forms that were tried, with their errors on held-out blocks."""
    aims = [*fit.judged[0].held_out]
    rows = []
    for one in fit.judged:
        held_out = (f"{100 * one.held_out[aim]:.1f} %" for aim in aims)
        chosen = f"{one.form} (chosen)" if one.form == fit.form else one.form
        rows.append((chosen, f"{one.score:.1f}", *held_out))
    numbers = "; ".join(
        f"{_number(name, getattr(fit.correction, name))} "
        f"(95 %: {_amount(name, low)} to {_amount(name, high)})"
        for name, (low, high) in fit.intervals.items()
    )
    return TextTable(
        "What was fitted on the first part",
        f"{numbers}. {_DRAWN if fit.form == SERVER else _CHOSEN}",
        ("", "score", *aims),
        tuple(rows),
    )


def curve_table(curves: Curves, title: str) -> TextTable:
    """Table of errors of the simulated log by phase; a dash for columns that were not recorded."""
    rows: list[tuple[str, ...]] = []
    phases: dict[str, Any] = curves.summary()["phases"]
    for name, found in phases.items():
        if not found["ticks"]:
            continue
        apart = (_apart(found, series) for series in SERIES)
        usage = found.get("kv_cache_usage_mean")
        means = (f"{100 * usage[side]:.1f} %" if usage else "-" for side in _SIDES)
        rows.append((name, count(found["ticks"]), *apart, *means))
    return TextTable(
        title,
        "Mean absolute difference over the ticks of each phase, of the whole run.",
        ("", "ticks", "running", "waiting", "KV, points", "KV recorded", "KV simulated"),
        tuple(rows),
    )


def _apart(found: dict[str, Any], series: str) -> str:
    apart = found.get(f"{series}_mae")
    if apart is None:
        return "-"
    return f"{(100 if series == 'kv_cache_usage' else 1) * apart:.1f}"


def step_tables(steps: StepByStep, which: str) -> list[TextTable]:
    """Tables of scheduling decisions, step durations, and KV pool usage."""
    tables = [_decisions(steps.lock_step)]
    if steps.times is not None:
        tables.append(_times(steps.times, which))
    return [*tables, _memory(steps.memory, which)]


def _decisions(found: LockStep) -> TextTable:
    steps = count(len(found.recorded))
    rows = [("steps recorded", steps), ("decided as recorded", count(len(found.shapes)))]
    if found.difference is not None:
        step, figure, recorded, simulated = found.difference
        rows.append((f"{figure} of step {step}", f"{recorded} recorded, {simulated} simulated"))
    return TextTable(
        "Decisions, step by step",
        "The recorded steps scheduled again with the same requests before each: tokens, queues, "
        "preemptions, blocks and bytes must be equal.",
        ("", ""),
        tuple(rows),
    )


def _times(times: StepErrors, which: str) -> TextTable:
    rows = []
    for kind, errors in times.by_kind.items():
        low, high = times.intervals[kind]["mape"]
        span = f"{100 * low:.1f} to {100 * high:.1f} %"
        sizes = [f"{100 * size:.1f} %" for size in (errors.mape, errors.p50, errors.p90)]
        rows.append((kind, count(errors.n), sizes[0], span, *sizes[1:], signed(errors.bias)))
    note = f"Relative errors of single steps; all of them together take {signed(times.total)}."
    heads = ("", "steps", "mean", "95 %", "p50", "p90", "bias")
    return TextTable(f"Step times: {which}", note, heads, tuple(rows))


def _memory(found: MemoryErrors, which: str) -> TextTable:
    rows = (
        ("mean difference", f"{100 * found.mean_absolute:.1f} points"),
        ("largest difference", f"{100 * found.largest:.1f} points"),
        ("mean, recorded", f"{100 * found.recorded_mean:.1f} %"),
        ("mean, simulated", f"{100 * found.simulated_mean:.1f} %"),
        ("peak, recorded", f"{100 * found.recorded_peak:.1f} %"),
        ("peak, simulated", f"{100 * found.simulated_peak:.1f} %"),
    )
    note = "The share of the pool that is taken, at equal times."
    return TextTable(f"KV memory over time: {which}", note, ("", ""), rows)
