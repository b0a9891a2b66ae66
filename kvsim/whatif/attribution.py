"""Lost concurrency: what each class of waste costs in sequences, tokens per second and GPUs.

By counterfactual runs, not by division. The stream is simulated under the unchanged allocator
first. Then one more class of its waste is removed each time, until every held byte is used. The
cost of a class is the difference between the run without it and the run before it. So the costs add
up to the whole distance between the allocator and the ideal. The order is fixed, from the outermost
class inwards, because each is only there on top of the next:

    external         regions may move, so that free bytes are one hole
    transient        buffers grow where they stand, without a copy
    rounding         regions are as large as asked
    overprovisioned  no slot is asked for that will never be written
    reserved         no slot is asked for before it is written

How an allocator is run without a class is its own answer (`AllocatorOptions.removals`).

A class that costs nothing here may still be large. Memory that nobody waits for is not lost, and
concurrency does not raise throughput once steps are bound by computation. GPUs are counted as how
many more of them the stream's output takes than it would have to.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from kvsim.memory.options import AllocatorOptions
from kvsim.memory.paged.options import Paged
from kvsim.report.class_bars import Stretches, class_bars, put_key_below
from kvsim.report.classes import LOOKS, ClassLook
from kvsim.report.names import called
from kvsim.results.summary import RunSummary
from kvsim.simulation import Simulation
from kvsim.whatif.deployments import check_alike, served
from kvsim.whatif.findings import Findings, FindingsFigure, FindingsTable, as_data

if TYPE_CHECKING:
    import plotly.graph_objects as go

Progress = Callable[[str, str], None]


class RunOutcome(NamedTuple):
    """Results of one run. running: mean number of running sequences. tokens_per_s: output tokens a
    second. e2e_s: mean seconds from arrival to last token; None if no request finished.
    preemptions: their number.
    """

    running: float
    tokens_per_s: float
    e2e_s: float | None
    preemptions: int


class WasteCost(NamedTuple):
    """The gain of removing the waste `classes`, in addition to those removed before. gpus: the gain
    in tokens a second, as a share of what the unchanged allocator serves. after: the run without
    these classes.
    """

    classes: tuple[str, ...]
    running: float
    tokens_per_s: float
    gpus: float
    after: RunOutcome


@dataclass(frozen=True)
class Attribution:
    """One unchanged allocator, and the cost of each class of its waste."""

    allocator: str
    label: str
    actual: RunOutcome
    costs: tuple[WasteCost, ...]

    @property
    def ideal(self) -> RunOutcome:
        """The run without any waste; the unchanged run if there was no waste to remove."""
        return self.costs[-1].after if self.costs else self.actual


def attribute(
    simulation: Simulation, progress: Progress = lambda label, what: None
) -> tuple[Attribution, ...]:
    """Compute the waste costs of every allocator of the scenario. progress: called with the
    allocator's label and the run being simulated.
    """
    scenario = simulation.scenario
    check_alike(scenario, "attribute")
    most = sum(1 + sum(1 for _ in options.removals()) for options in scenario.allocator)
    runs = count(1)

    def told(label: str, what: str) -> None:
        progress(label, f"{what}: run {next(runs)} of at most {most}")

    return tuple(
        _attribute(simulation, options, label, told)
        for options, label in zip(scenario.allocator, scenario.labels(), strict=True)
    )


def _attribute(
    simulation: Simulation, options: AllocatorOptions, label: str, progress: Progress
) -> Attribution:
    progress(label, "as it is")
    summary = served(simulation, options, label)
    before = actual = _outcome(summary)
    wasted = summary.memory.time_mean
    costs = []
    for classes, without in options.removals():
        if without is not None and not any(wasted.of(name) for name in classes):
            continue  # there is nothing of it to remove
        progress(label, f"without {', '.join(classes)}")
        after = _outcome(served(simulation, without or IDEAL, label))
        tokens = after.tokens_per_s - before.tokens_per_s
        gpus = tokens / actual.tokens_per_s if actual.tokens_per_s else 0.0
        costs.append(WasteCost(classes, after.running - before.running, tokens, gpus, after))
        before = after
    return Attribution(summary.allocator, label, actual, tuple(costs))


IDEAL = Paged(block_size=1, enable_prefix_caching=False, watermark=0.0)


def _outcome(summary: RunSummary) -> RunOutcome:
    return RunOutcome(
        summary.running_mean or 0.0,
        summary.output_tokens_per_s or 0.0,
        summary.e2e_s.mean,
        summary.preemptions,
    )


def attribution_findings(found: tuple[Attribution, ...], scenario: Mapping[str, Any]) -> Findings:
    """The findings on all allocators, one table each. scenario: the simulated tables."""
    return Findings(
        "What each class of waste costs",
        [("allocators", str(len(found)))],
        [
            _verdict(found),
            "Each row removes one more class of waste, after those above it.",
            "Sequences, tokens/s and GPUs of such a row are what it gains. Its time is the mean "
            "end-to-end time of that run.",
            "GPUs count output: 1 is what the scenario's GPUs serve as it is, and +0.5 is half of "
            "that more.",
        ],
        [
            FindingsFigure(
                "Served, and lost to waste",
                "Output tokens a second. The first part of a bar is served. The others are what "
                "removing one more class adds, in the colours of the classes.",
                partial(_costs_figure, found),
                lead=True,
            ),
            *map(_costs_table, found),
        ],
        scenario,
        {"runs": [{**as_data(vars(each)), "ideal": as_data(each.ideal)} for each in found]},
    )


def _verdict(found: Sequence[Attribution]) -> str:
    """The sentence on the allocator that loses most, and to which class of waste."""
    worst = max(found, key=lambda each: sum(cost.gpus for cost in each.costs))
    gpus = sum(cost.gpus for cost in worst.costs)
    if gpus <= 0:
        return "No class of waste costs tokens here: memory is not what limits."
    dearest = max(worst.costs, key=lambda cost: cost.gpus)
    return (
        f"Without any waste {called(worst.label)} would serve {worst.ideal.tokens_per_s:,.0f} "
        f"tokens/s, not {worst.actual.tokens_per_s:,.0f}. Most of it is lost to "
        f"{' and '.join(dearest.classes)}: {dearest.tokens_per_s:,.0f} tokens/s."
    )


def _costs_figure(found: Sequence[Attribution]) -> "go.Figure | None":
    """A figure with one bar for each allocator: tokens a second served, and the gain without each
    class of waste.
    """
    served = [each.actual.tokens_per_s for each in found]
    if not any(served):
        return None
    first, *others = LOOKS
    bars = [_stretches(first._replace(name="served"), served, "served: ")]
    bars += [_stretches(look, _gains(found, look), f"without {look.name}: +") for look in others]
    labels = [each.label for each in found]
    figure = class_bars(labels, bars, row_px=64, edges_px=128, gap=0.5)
    put_key_below(figure, 120)
    figure.update_xaxes(title_text="output tokens/s", rangemode="tozero")
    return figure


def _gains(found: Sequence[Attribution], look: ClassLook) -> list[float]:
    """(gain in tokens a second for each allocator without this class of waste, classes removed with
    it); 0 for a loss.
    """
    return [
        sum(max(0.0, cost.tokens_per_s) for cost in each.costs if cost.classes[0] == look.name)
        for each in found
    ]


def _stretches(look: ClassLook, values: list[float], words: str) -> Stretches:
    """The segments of one class of waste in all bars. words: text before the tokens a second in the
    tooltip.
    """
    texts = [f"{value:,.0f}" if value else "" for value in values]
    hover = f"{words}%{{customdata[1]}} tokens/s"
    return Stretches(look, values, texts, hover, [[text] for text in texts])


def _costs_table(found: Attribution) -> FindingsTable:
    def row(name: str, outcome: RunOutcome, gpus: str) -> tuple[str, ...]:
        running, tokens = f"{outcome.running:,.2f}", f"{outcome.tokens_per_s:,.0f}"
        return name, running, tokens, gpus, seconds(outcome.e2e_s)

    def seconds(value: float | None) -> str:
        return "" if value is None else f"{value:,.2f}"

    gains = [
        (
            f"without {' and '.join(cost.classes)}",
            *(f"{cost.running:+,.2f}", f"{cost.tokens_per_s:+,.0f}", f"{cost.gpus:+.2f}"),
            seconds(cost.after.e2e_s),
        )
        for cost in found.costs
    ]
    actual = row("as it is", found.actual, "1")
    gpus = 1 + sum(cost.gpus for cost in found.costs)
    ideal = row("without waste", found.ideal, f"{gpus:.2f}")
    heads = ("", "sequences", "tokens/s", "GPUs", "mean end to end, s")
    return FindingsTable(found.label, "", heads, [actual, *gains, ideal], has_total=True)
