"""The findings of an advice: what each change buys, and the best setting as flags."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvsim.report import numbers
from kvsim.report.intervals import NARROW
from kvsim.whatif.advice import serve
from kvsim.whatif.advice.advice import ALSO
from kvsim.whatif.advice.baseline import LoadReading
from kvsim.whatif.advice.baseline_sentences import baseline_sentences
from kvsim.whatif.advice.change import Advice, Change, Goal, value_text
from kvsim.whatif.capacity.load import unit
from kvsim.whatif.findings import (
    CommandText,
    Findings,
    FindingsColumn,
    FindingsFigure,
    FindingsTable,
    Section,
    as_data,
)
from kvsim.whatif.intervals import Ratio, ratio_text
from kvsim.whatif.number_words import in_words
from kvsim.whatif.scenario_tables import pool_as_given
from kvsim.whatif.servers.flags import changed_flags
from kvsim.whatif.whiskers import Whisker, whiskers

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_ROWS = 12
MOST_DRAWN = 8


def advice_findings(advice: Advice, folder: Path, runs: int) -> Findings:
    """The findings of an advice. folder: where the scenario's paths start; runs: number of
    simulations.
    """
    own = advice.own
    today = serve.command(own, folder)
    best = serve.command(pool_as_given(advice.best, own), folder, own)
    helped = advice.reported is not None
    sections: list[Section] = [
        FindingsFigure(
            f"Gain or loss in {advice.goal.name} of each change",
            "A dot is the mean of one change alone, its line the 95 % interval. A filled dot helps "
            "beyond chance on seeds of its own; an open one was not tested there, or does not "
            "help. The table has the changes that only harm. " + NARROW,
            partial(_changes_figure, advice),
            lead=True,
        ),
        _changes_table(advice),
        CommandText("Today", "As flags of vllm serve.", today, lead=not helped),
    ]
    if helped:
        changed = changed_flags(today, best)
        note = "What to change in today's flags; all others stay."
        sections.append(CommandText("The best setting found", note, changed, lead=True))
    if advice.not_tried:
        note = "They are no scenario of this model, device and engine."
        rows, heads = advice.not_tried, ("", "why")
        sections.append(FindingsTable("What cannot be tried", note, heads, rows, terminal_rows=0))
    return Findings(
        "What other settings would buy",
        [("allocator", advice.label), ("changes", str(len(advice.changes)))],
        advice_sentences(advice),
        sections,
        advice.today,
        {**_data(advice), "vllm_serve": {"today": today, "best": best}, "runs": runs},
    )


def advice_sentences(advice: Advice) -> list[str]:
    """Sentences on the gain of the best setting on unseen replicates, on the search, and on the
    baseline.
    """
    sets, goal = advice.replicates, advice.goal
    of = "seeds" if sets.search[0].window_s is None else "parts of the trace"
    searched = f"Searched on {len(sets.search)} {of}, tested on {len(sets.test)} others"
    if sets.exact:
        searched = "Nothing in this scenario is random, and differences are exact"
    sentences = _best_sentences(advice, of)
    words = in_words(goal.name)
    aim = "higher" if goal.higher else "lower"
    sentences.append(f"{searched}. Goal: a {aim} {words} ({goal.name}).")
    if advice.base is not None:
        base = numbers.figures(advice.base, 4)
        base = numbers.seconds(advice.base) if "_s." in goal.name else base
        sentences.append(f"As it is, the {words} is {base}.")
    if advice.saturated:
        sentences.append(
            f"It cannot keep up with its arrivals in {advice.saturated} of {len(sets.search)} runs "
            "(saturated), so its waits tell how long it was run."
        )
    others = None if sets.exact else f"{len(sets.report)} more {of}"
    sentences += baseline_sentences(
        advice.baseline, f"the {words}", others, unit(advice.today), bool(advice.taken)
    )
    return [*sentences, *advice.notes]


def _best_sentences(advice: Advice, of: str) -> list[str]:
    """Sentences on the best setting. of: name of the replicates, such as seeds."""
    sets, goal = advice.replicates, advice.goal
    lost = [f"{each.knob.key} = {value_text(each.value)}" for each in advice.lost]
    if advice.reported is None:
        return [_no_change(advice, lost, of)]
    names = ", ".join(f"{each.knob.key} = {value_text(each.value)}" for each in advice.taken)
    fresh = "" if sets.exact else f", on {len(sets.report)} {of} that the search has not seen"
    sentences = [
        f"With {names}: {ratio_text(advice.reported)} in {in_words(goal.name)}{fresh}. The gain is "
        "beyond chance and beyond the model's own error."
    ]
    if lost:
        sentences.append(f"Not confirmed there, and left out: {numbers.listed(lost)}.")
    beside = [
        f"{in_words(name)} {ratio_text(ratio)}" for name, ratio in advice.reported_also.items()
    ]
    if beside:
        sentences.append(f"On the same requests: {numbers.listed(beside)}.")
    return sentences + [
        f"Beware: {each.knob.key} = {value_text(each.value)}: {each.knob.caution}."
        for each in advice.taken
        if each.knob.caution
    ]


def _no_change(advice: Advice, lost: list[str], of: str) -> str:
    """The sentence that no change is advised, with the change that came nearest.

    lost: changes that fresh replicates did not confirm.
    """
    beyond = f"beyond chance and the model's own error ({100 * advice.goal.own_error:.0f} %)"
    if lost:
        return (
            f"No change is advised: {numbers.listed(lost)} looked better, and "
            f"{len(advice.replicates.report)} fresh {of} did not confirm it {beyond}."
        )
    small = [
        f"{each.knob.key} = {value_text(each.value)}: {ratio_text(each.tested)}"
        for each in advice.changes
        if each.small
    ]
    less = f" Less than that: {'; '.join(small)}." if small else ""
    return f"No change was found that helps {beyond}.{less}"


def _changes_figure(advice: Advice) -> "go.Figure | None":
    """A figure of the changes with an effect, best first."""
    rows = []
    for each in advice.changes:
        ratio = each.tested or each.ratio
        if ratio is None or ratio.same or _only_harms(advice.goal, ratio):
            continue
        name = f"{each.knob.key.rpartition('.')[2]} = {value_text(each.value)}"
        mean, low, high = (100 * part for part in ratio)
        rows.append(Whisker(name, mean, low, high, ratio_text(ratio), each.helps))
    return whiskers(rows[:MOST_DRAWN], f"change of {advice.goal.name}, %")


def _only_harms(goal: Goal, ratio: Ratio) -> bool:
    """Whether the whole interval is on the harmful side of 0."""
    return ratio.high < 0 if goal.higher else ratio.low > 0


def _changes_table(advice: Advice) -> FindingsTable:
    """A table of every change, best first: its effect on the goal and on other metrics.

    Changes without an effect are listed in the note.
    """
    goal = advice.goal.name
    idle: dict[str, list[str]] = {}
    for each in advice.changes:
        if each.verdict == "the same":
            idle.setdefault(each.knob.key.rpartition(".")[2], []).append(value_text(each.value))
    named = "; ".join(f"{key} = {', '.join(values)}" for key, values in idle.items())
    nothing = f" These change nothing at all: {named}." if idle else ""
    others = [name for name in ALSO if name != goal]
    searched = [FindingsColumn(f"{name} in the search", ratio_text, True) for name in others]
    return FindingsTable(
        "What each change buys",
        f"Each change alone, against today on the same requests: {goal} in the test for those that "
        "went that far, with its interval, else in the search." + nothing,
        (
            *("", FindingsColumn("today", value_text), FindingsColumn("instead", value_text)),
            *(FindingsColumn(goal, ratio_text), ""),
            *searched,
        ),
        [
            (
                *(each.knob.key.rpartition(".")[2], each.before, each.value),
                *(each.tested or each.ratio, each.verdict),
                *map(each.also.get, others),
            )
            for each in advice.changes
            if each.verdict != "the same"
        ],
        MOST_ROWS,
    )


def _data(advice: Advice) -> dict[str, Any]:
    """The JSON answer without the command lines."""
    baseline, sets = advice.baseline, advice.replicates
    room = baseline.headroom
    return {
        "label": advice.label,
        "goal": advice.goal.name,
        "today": advice.base,
        "saturated_runs": advice.saturated,
        "changes": [_change_data(each) for each in advice.changes],
        "not_tried": dict(advice.not_tried),
        "standing": {
            "load": _load_data(baseline.load),
            "again": _load_data(baseline.again),
            "twice_the_pool": as_data(baseline.twice),
            "headroom": room and {**room._asdict(), "beyond": _load_data(room.beyond)},
            "least_pool": as_data(baseline.pool),
        },
        "notes": advice.notes,
        "own_error": advice.goal.own_error,
        "not_confirmed": {each.knob.key: each.value for each in advice.lost},
        "taken": {each.knob.key: each.value for each in advice.taken},
        "reported": as_data(advice.reported),
        "also": as_data(advice.reported_also),
        "replicates": sets.names(),
    }


def _change_data(change: Change) -> dict[str, Any]:
    return {
        "key": change.knob.key,
        "before": change.before,
        "value": change.value,
        "gain": change.gain,
        "searched": as_data(change.ratio),
        "tested": as_data(change.tested),
        "also": as_data(change.also),
        "verdict": change.verdict,
    }


def _load_data(load: LoadReading | None) -> dict[str, Any] | None:
    return load and {**as_data(load), "binds": load.binds}
