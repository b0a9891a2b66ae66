"""Advice as tables of text and as a page."""

from collections.abc import Sequence

from kvsim.plumbing.toml import to_toml
from kvsim.report import numbers
from kvsim.whatif import page
from kvsim.whatif.advice import words
from kvsim.whatif.advice.advice import ALSO
from kvsim.whatif.advice.change import Advice, Change, said
from kvsim.whatif.advice.words import ratio_text
from kvsim.whatif.capacity.load import unit
from kvsim.whatif.intervals import Ratio

MOST_ROWS = 12


def sentences(advice: Advice) -> list[str]:
    """What was found, in words."""
    sets = advice.replicates
    where = (
        "Nothing in this scenario is random, and differences are exact"
        if sets.exact
        else f"Searched on {len(sets.search)} {_kind(advice)}, tested on {len(sets.test)} others"
    )
    said_ = [f"{where}. Goal: {'more' if advice.goal.higher else 'less'} {advice.goal.name}."]
    if advice.base is not None:
        said_.append(f"As it is, {advice.goal.name} is {numbers.figures(advice.base, 4)}.")
    if advice.saturated:
        said_.append(
            f"It cannot keep up with its arrivals in {advice.saturated} of {len(sets.search)} runs "
            "(saturated), so its waits tell how long it was run."
        )
    others = None if sets.exact else f"{len(sets.report)} more {_kind(advice)}"
    said_ += words.sentences(
        advice.standing, advice.goal.name, others, unit(advice.today), bool(advice.taken)
    )
    if advice.reported is None:
        said_.append("No change was found that helps beyond chance.")
    else:
        names = ", ".join(f"{each.knob.key} = {said(each.value)}" for each in advice.taken)
        fresh = "" if sets.exact else f", on {len(sets.report)} more that the search has not seen"
        sure = "and that holds" if _better(advice, advice.reported) else "but that is not sure"
        said_.append(
            f"With {names}: {ratio_text(advice.reported)} in {advice.goal.name}{fresh}; {sure}."
        )
        beside = [f"{name} {ratio_text(of)}" for name, of in advice.reported_also.items()]
        if beside:
            said_.append(f"Beside it, there: {numbers.listed(beside)}.")
        said_ += [
            f"Beware: {each.knob.key} = {said(each.value)}: {each.knob.caution}."
            for each in advice.taken
            if each.knob.caution
        ]
    return [*said_, *advice.notes]


def changes_table(advice: Advice, most: int = MOST_ROWS, also: Sequence[str] = ()) -> page.Cells:
    """Every change, best first: what it buys alone; also: other numbers to tell beside the goal."""
    others = [name for name in also if name != advice.goal.name]
    rows = tuple(
        (
            each.knob.key.rpartition(".")[2],
            said(each.before),
            said(each.value),
            _gain(each),
            each.verdict,
            *(ratio_text(each.also.get(name)) for name in others),
        )
        for each in advice.changes[:most]
    )
    note = (
        f"Each change alone, against today on the same requests: {advice.goal.name} in the test "
        f"for those that went that far, with its interval, else in the search{_beside(others)}."
    )
    left = len(advice.changes) - len(rows)
    more = f" {left} more changes are not shown." if left else ""
    heads = ("", "today", "instead", advice.goal.name, "", *others)
    return page.Cells("What each change buys", note + more, heads, rows)


def make_page(advice: Advice, today: str, best: str) -> str:
    """The page as HTML. today, best: the command lines."""
    sections: list[page.Section] = [changes_table(advice, len(advice.changes), ALSO)]
    sections.append(page.Code("Today", "As `vllm serve` flags.", today))
    if advice.reported is not None:
        sections.append(page.Code("The best setting found", "Ready to paste.", best))
    if advice.not_tried:
        note = "They are no scenario of this model, device and engine."
        heads = ("", "why")
        sections.append(page.Cells("What cannot be tried", note, heads, advice.not_tried))
    facts = [("allocator", advice.label), ("changes", str(len(advice.changes)))]
    return page.make_page(
        "What other settings would buy", facts, sentences(advice), sections, to_toml(advice.today)
    )


def _beside(others: Sequence[str]) -> str:
    return f"; {numbers.listed(list(others))} in the search" if others else ""


def _gain(change: Change) -> str:
    return ratio_text(change.tested or change.ratio)


def _better(advice: Advice, of: Ratio) -> bool:
    return of.seen and advice.goal.gain(of) > 0


def _kind(advice: Advice) -> str:
    windowed = advice.replicates.search[0].window_s is not None
    return "stretches of the trace" if windowed else "seeds"
