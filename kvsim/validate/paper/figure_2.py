"""Figure 2: what the KV memory of four systems holds, averaged over iterations.

The paper draws vLLM's bar without room for labels; its three slivers are no data, its 96.3 is.
"""

from collections.abc import Iterator
from statistics import fmean, stdev

from kvsim.validate.paper.check import Check, within
from kvsim.validate.paper.experiment import SYSTEMS, Means, Setting

SOURCE = "PagedAttention, figure 2"
LAUNCH_POST = "vLLM launch post, 2023-06-20"
CELLS = ("token states", "reservation", "internal", "external and others")
PUBLISHED: dict[str, tuple[float, ...]] = {
    "Orca (Max)": (20.4, 13.3, 57.3, 8.9),
    "Orca (Pow2)": (26.8, 17.9, 13.6, 41.6),
    "Orca (Oracle)": (38.2, 25.2, 0.0, 36.6),
    "vLLM": (96.3,),
}
WASTED = {"Orca (Max)": (60, 80), "Orca (Oracle)": (60, 80), "vLLM": (0, 4)}
RATE_PER_S = 4.0  # above what any of them sustains, so that all are full
STREAMS = 4
TOLERANCE = 1.0
Runs = dict[str, list[Means]]


def simulate(setting: Setting) -> Runs:
    """Every system under the same streams."""
    return {
        name: setting.watch(tables, setting.sharegpt, RATE_PER_S, STREAMS)
        for name, tables in SYSTEMS.items()
    }


def bars(runs: Runs) -> dict[str, list[tuple[float, float]]]:
    """For each system the four cells: mean and standard deviation over streams, in per cent."""
    return {
        name: [(fmean(cell), stdev(cell)) for cell in cells_of(found)]
        for name, found in runs.items()
    }


def checks(setting: Setting, runs: Runs) -> Iterator[Check]:
    """Every published cell; and the share that does not hold tokens, as the launch post has it."""
    found = bars(runs)
    for name, published in PUBLISHED.items():
        for cell, value, (simulated, spread) in zip(CELLS, published, found[name], strict=False):
            quantity, tolerance = f"{name}: {cell}", TOLERANCE * setting.slack
            yield Check(SOURCE, quantity, value, simulated, "% of KV memory", tolerance, spread)
    margin = TOLERANCE * (setting.slack - 1)
    for name, span in WASTED.items():
        wasted = 100 - found[name][0][0]
        yield within(LAUNCH_POST, f"{name}: wasted", span, wasted, "% of KV memory", margin)


def cells_of(found: list[Means]) -> list[tuple[float, ...]]:
    """The four cells, each with its value in every stream."""
    return list(zip(*(means.paper_view for means in found), strict=True))
