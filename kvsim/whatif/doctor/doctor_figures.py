"""Figures of a diagnosis: how requests' time and the pool were spent, unchanged and cured."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kvsim.report.class_bars import Stretches, class_bars, put_key_below
from kvsim.report.classes import ClassLook
from kvsim.report.figure import round_times
from kvsim.report.figures.shares import Shares
from kvsim.report.numbers import percent, seconds
from kvsim.results.result import Result
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.doctor.spent import Spent

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Okabe and Ito's hues, as the ledger's classes have them: blue runs, warm hues wait.
LOOKS = {
    "running": ClassLook("running", "working", "#0072b2", "#ffffff", "", "In a step."),
    "limit": ClassLook("waiting: max_num_seqs", "held, not working", "#e69f00", "#1a1a1a", "", ""),
    "memory": ClassLook("waiting: memory", "held, not working", "#d55e00", "#ffffff", "", ""),
    "holes": ClassLook(
        "waiting: a large enough gap", "held, not working", "#cc79a7", "#1a1a1a", "", ""
    ),
    "adapters": ClassLook(
        "waiting: an adapter's slot", "held, not working", "#f0e442", "#1a1a1a", "", ""
    ),
    "encoder": ClassLook("waiting: the encoder", "held, not working", "#009e73", "#ffffff", "", ""),
    "loads": ClassLook("waiting: a load", "held, not working", "#56b4e9", "#1a1a1a", "", ""),
    "step": ClassLook("waiting: room in a step", "free", "#bdbdbd", "#1a1a1a", "", ""),
}

APART = ("adapters", "encoder", "loads")


def times(named: Sequence[tuple[str, Spent]]) -> "go.Figure | None":
    """A bar for each setting: the mean end-to-end time in seconds, split by cause; None if no
    request finished.
    """
    means = [each.e2e_s or 0.0 for _, each in named]
    if not all(means):
        return None
    parts = [{"running": 1.0 - each.waits.total, **each.waits._asdict()} for _, each in named]
    classes = []
    for name, look in LOOKS.items():
        if name in APART and not any(part[name] for part in parts):
            continue  # few servers have such a queue
        spent = [part[name] * mean for part, mean in zip(parts, means, strict=True)]
        texts = [seconds(each) for each in spent]
        shares = [percent(part[name]) for part in parts]
        hover = f"{look.name}: %{{customdata[1]}}, %{{customdata[2]}} of the time"
        details = list(zip(texts, shares, strict=True))
        classes.append(Stretches(look, spent, texts, hover, details))
    figure = class_bars([label for label, _ in named], classes, row_px=64, edges_px=84, gap=0.5)
    longest = max(means)
    put_key_below(figure, 76)
    figure.update_xaxes(range=[0, longest], **round_times(longest), ticklabeloverflow="allow")
    return figure


def pools(named: Sequence[tuple[str, ExaminedRun]]) -> "go.Figure | None":
    """A bar for each run: the mean share of each ledger class."""
    runs = tuple(replace(case.run, label=label) for label, case in named)
    return Shares().draw(Result({}, runs))
