"""The findings of an advice: what each change buys, and the best setting as flags."""

from pathlib import Path
from typing import Any

from kvsim.report import numbers
from kvsim.whatif.advice import serve
from kvsim.whatif.advice.advice import ALSO
from kvsim.whatif.advice.baseline import LoadReading
from kvsim.whatif.advice.baseline_sentences import baseline_sentences
from kvsim.whatif.advice.change import Advice, Change, value_text
from kvsim.whatif.capacity.load import unit
from kvsim.whatif.findings import (
    CommandText,
    Findings,
    FindingsColumn,
    FindingsTable,
    Section,
    as_data,
)
from kvsim.whatif.intervals import ratio_text

MOST_ROWS = 12


def advice_findings(advice: Advice, folder: Path, runs: int) -> Findings:
    """The findings of the advice. folder: where the scenario's paths start; runs: simulations."""
    today, best = (serve.command(each, folder) for each in (advice.today, advice.best))
    sections: list[Section] = [
        _changes_table(advice),
        CommandText("Today", "As `vllm serve` flags.", today),
    ]
    if advice.reported is not None:
        sections.append(CommandText("The best setting found", "Ready to paste.", best))
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
    """How it was searched, the baseline, and what the best setting buys on unseen replicates."""
    sets, goal = advice.replicates, advice.goal
    of = "seeds" if sets.search[0].window_s is None else "stretches of the trace"
    searched = f"Searched on {len(sets.search)} {of}, tested on {len(sets.test)} others"
    if sets.exact:
        searched = "Nothing in this scenario is random, and differences are exact"
    sentences = [f"{searched}. Goal: {'more' if goal.higher else 'less'} {goal.name}."]
    if advice.base is not None:
        sentences.append(f"As it is, {goal.name} is {numbers.figures(advice.base, 4)}.")
    if advice.saturated:
        sentences.append(
            f"It cannot keep up with its arrivals in {advice.saturated} of {len(sets.search)} runs "
            "(saturated), so its waits tell how long it was run."
        )
    others = None if sets.exact else f"{len(sets.report)} more {of}"
    sentences += baseline_sentences(
        advice.baseline, goal.name, others, unit(advice.today), bool(advice.taken)
    )
    if advice.reported is None:
        sentences.append("No change was found that helps beyond chance.")
    else:
        names = ", ".join(f"{each.knob.key} = {value_text(each.value)}" for each in advice.taken)
        fresh = "" if sets.exact else f", on {len(sets.report)} more that the search has not seen"
        better = advice.reported.seen and goal.gain(advice.reported) > 0
        sure = "and that holds" if better else "but that is not sure"
        gain = f"{ratio_text(advice.reported)} in {goal.name}{fresh}"
        sentences.append(f"With {names}: {gain}; {sure}.")
        beside = [f"{name} {ratio_text(ratio)}" for name, ratio in advice.reported_also.items()]
        if beside:
            sentences.append(f"Beside it, there: {numbers.listed(beside)}.")
        sentences += [
            f"Beware: {each.knob.key} = {value_text(each.value)}: {each.knob.caution}."
            for each in advice.taken
            if each.knob.caution
        ]
    return [*sentences, *advice.notes]


def _changes_table(advice: Advice) -> FindingsTable:
    """Every change, best first: what it buys of the goal, and beside it, alone."""
    goal = advice.goal.name
    others = [name for name in ALSO if name != goal]
    searched = [FindingsColumn(f"{name} in the search", ratio_text, True) for name in others]
    return FindingsTable(
        "What each change buys",
        f"Each change alone, against today on the same requests: {goal} in the test for those that "
        "went that far, with its interval, else in the search.",
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
        ],
        MOST_ROWS,
    )


def _data(advice: Advice) -> dict[str, Any]:
    """The JSON answer but for the command lines."""
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
