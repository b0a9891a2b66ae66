"""The HTML page of `kvsim validate paper`: figure 2 as published, simulated, and for today's
servers, and every check.

Bars are plain HTML boxes. The page is a few kilobytes and loads nothing; its only script switches
between light and dark.
"""

from statistics import fmean
from typing import NamedTuple

from evidence.paper import figure_2
from evidence.paper.check import Check
from evidence.paper.experiment import Means, mean_of
from evidence.paper.findings import PaperFindings
from evidence.paper.strips import strips
from kvsim.report.classes import LOOKS
from kvsim.report.template import rendered
from kvsim.version import VERSION

LEAST_LABELLED = 6.0  # per cent; a narrower box has no room for its number
_COLOURS = {look.name: (look.colour, look.ink) for look in LOOKS}
_CELL_CLASSES = dict(
    zip(figure_2.CELLS, ("used", "reserved", "overprovisioned", "short"), strict=True)
)


class Box(NamedTuple):
    """A segment of a bar, with its width in percent."""

    name: str
    per_cent: float
    colour: str
    ink: str

    @property
    def label(self) -> str:
        """The segment's number, if there is space for it."""
        return f"{self.per_cent:.1f}" if self.per_cent >= LEAST_LABELLED else ""


class Bar(NamedTuple):
    """A named row of segments. note: text at its right end."""

    name: str
    boxes: tuple[Box, ...]
    note: str = ""


class Chart(NamedTuple):
    """A chart of bars with a heading."""

    title: str
    note: str
    bars: tuple[Bar, ...]


def make_page(found: PaperFindings, today: dict[str, Means]) -> str:
    """The page as HTML. today: the result of `evidence.paper.today.simulate`."""
    return rendered(
        "paper.html",
        "evidence.paper",
        title="The PagedAttention paper, simulated again",
        charts=[_published(), _simulated(found), _placements(found), _today(today)],
        cells=[(cell, *_COLOURS[name]) for cell, name in _CELL_CLASSES.items()],
        classes=[(look.name, look.colour, look.ink) for look in LOOKS],
        held=[_row(check) for check in found.held],
        reported=[_row(check) for check in found.reported],
        strips=strips(found),
        draws=found.draws,
        ok=found.ok,
        seed=found.setting.seed,
        streams=found.setting.streams,
        lengths=found.lengths,
        version=VERSION,
    )


def _cells(values: tuple[float, ...]) -> tuple[Box, ...]:
    named = zip(figure_2.CELLS, values, strict=False)
    return tuple(Box(cell, value, *_COLOURS[_CELL_CLASSES[cell]]) for cell, value in named)


def _published() -> Chart:
    bars = []
    for name, values in figure_2.PUBLISHED.items():
        rest = () if len(values) > 1 else (Box("not labelled", 100 - values[0], "#ffffff", "#000"),)
        bars.append(Bar(name, _cells(values) + rest))
    return Chart("The paper's figure 2", "Per cent of KV memory; OPT-13B, A100-40GB.", tuple(bars))


def _simulated(found: PaperFindings) -> Chart:
    bars = [
        Bar(
            name,
            _cells(tuple(mean for mean, _ in cells)),
            f"{fmean(means.running for means in found.figure_2[name]):.1f} running",
        )
        for name, cells in figure_2.bars(found.figure_2).items()
    ]
    note = (
        "The same cut of the simulator's ledger; mean over steps, 300 s to 900 s, 4 requests/s, "
        f"and over {found.setting.streams} streams of requests."
    )
    return Chart("Simulated", note, tuple(bars))


def _ledger(name: str, means: Means) -> Bar:
    boxes = [
        Box(look.name, 100 * means.shares[look.name], look.colour, look.ink)
        for look in LOOKS
        if means.shares[look.name] > 0
    ]
    return Bar(name, tuple(boxes), f"{means.running:,.1f} running")


def _placements(found: PaperFindings) -> Chart:
    oracle = mean_of(
        found.figure_2["Orca (Oracle)"][: found.setting.few]
    )  # the streams that the others met
    points = 100 * (found.beyond["exact size, first fit"].shares["used"] - oracle.shares["used"])
    bars = [_ledger("exact size, buddies (Orca (Oracle))", oracle)]
    bars += [_ledger(name, means) for name, means in found.beyond.items()]
    bars.append(_ledger("vLLM", mean_of(found.figure_2["vLLM"][: found.setting.few])))
    note = (
        "The same streams with other placements, in the ledger's own classes. Known sizes placed "
        f"first fit hold {points:.1f} points more tokens than the same sizes on buddies: that part "
        "of Orca (Oracle)'s waste is the buddy allocator's, not contiguity's."
    )
    return Chart("What the paper did not have", note, tuple(bars))


def _today(today: dict[str, Means]) -> Chart:
    bars = [
        _ledger(name, means)._replace(
            note=f"{means.running:,.0f} running, {means.tokens_per_s:,.0f} tokens/s"
        )
        for name, means in today.items()
    ]
    note = (
        "Llama-3-8B on one H200, chunked prefill of 8,192 tokens a step, ShareGPT's lengths, more "
        "requests than any of them serves; step times from a roofline. Concurrency follows memory "
        "as in the paper; throughput does not, once a step is bound by computation."
    )
    return Chart("Today", note, tuple(bars))


def _row(check: Check) -> dict[str, str | bool]:
    return {
        "source": check.source,
        "quantity": check.quantity,
        "published": f"{check.published:,.2f}",
        "simulated": f"{check.simulated:,.2f}",
        "difference": f"{check.difference:+,.2f}",
        "unit": check.unit,
        "tolerance": "" if check.tolerance is None else f"{check.tolerance:,.3g}",
        "why": check.why,
        "ok": check.ok,
    }
