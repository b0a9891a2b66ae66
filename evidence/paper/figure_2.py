"""Figure 2: what the KV memory of four systems holds, averaged over iterations.

The paper draws vLLM's bar without room for labels; its three slivers are no data, its 96.3 is. A
system's cells sum to 100, so one of each follows from the others. Orca (Max)'s external is the
remainder of seven buffers. Orca (Oracle)'s internal is the one slot a sequence that its last token
never fills. The other cells are FREE, and compared as one draw.
"""

from collections.abc import Iterator
from statistics import fmean, stdev

from evidence.paper.check import Check, within
from evidence.paper.experiment import SYSTEMS, Means, Setting
from evidence.paper.one_draw import Draw, half_width, one_draw

SOURCE = "PagedAttention, figure 2"
LAUNCH_POST = "vLLM launch post, 2023-06-20"
CELLS = ("token states", "reservation", "internal", "external and others")
PUBLISHED: dict[str, tuple[float, ...]] = {
    "Orca (Max)": (20.4, 13.3, 57.3, 8.9),
    "Orca (Pow2)": (26.8, 17.9, 13.6, 41.6),
    "Orca (Oracle)": (38.2, 25.2, 0.0, 36.6),
    "vLLM": (96.3,),
}
FREE = {"Orca (Max)": 2, "Orca (Pow2)": 3, "Orca (Oracle)": 2, "vLLM": 1}  # the first so many
NEVER_FILLED = ("Orca (Oracle)", "internal")
WASTED = {"Orca (Max)": (60, 80), "Orca (Oracle)": (60, 80), "vLLM": (0, 4)}
RATE_PER_S = 4.0  # above what any of them sustains, so that all are full
UNIT = "% of KV memory"
Runs = dict[str, list[Means]]


def simulate(setting: Setting) -> Runs:
    """Simulate every system under the same streams."""
    return {
        name: setting.watch(tables, setting.sharegpt, RATE_PER_S, setting.streams)
        for name, tables in SYSTEMS.items()
    }


def bars(runs: Runs) -> dict[str, list[tuple[float, float]]]:
    """The four cells of each system: mean and standard deviation over streams, in percent."""
    return {
        name: [(fmean(cell), stdev(cell)) for cell in cells_of(found)]
        for name, found in runs.items()
    }


def checks(runs: Runs) -> Iterator[Check]:
    """A check per published cell, and one of the memory that holds no tokens, from the launch post.

    A cell's tolerance is how far a single stream can be from the mean of many.
    """
    found = bars(runs)
    free = sum(FREE.values())
    for name, published in PUBLISHED.items():
        streams = len(runs[name])
        for cell, value, (simulated, spread) in zip(CELLS, published, found[name], strict=False):
            held = (name, cell) != NEVER_FILLED
            yield Check(
                SOURCE,
                f"{name}: {cell}",
                value,
                simulated,
                UNIT,
                half_width(spread, streams, free) if held else None,
                spread,
                why="" if held else "one slot a sequence: the last token's keys are never written",
                streams=streams,
            )
    for name, span in WASTED.items():
        wasted = 100 - found[name][0][0]
        yield within(LAUNCH_POST, f"{name}: wasted", span, wasted, UNIT)


def draw(runs: Runs) -> Draw:
    """Test of the paper's trace among the simulated streams, in all free cells at once."""
    return one_draw(SOURCE, *free_cells(runs))


def free_cells(runs: Runs) -> tuple[dict[str, float], list[list[float]]]:
    """The published free cells by name, and a row of the same cells for each stream."""
    published = {
        f"{name}: {cell}": value
        for name, count in FREE.items()
        for cell, value in zip(CELLS[:count], PUBLISHED[name], strict=False)
    }
    rows = zip(*(runs[name] for name in FREE), strict=True)
    counts = tuple(FREE.values())
    return published, [
        [value for means, n in zip(row, counts, strict=True) for value in means.paper_view[:n]]
        for row in rows
    ]


def cells_of(found: list[Means]) -> list[tuple[float, ...]]:
    """The four cells, each with its value in every stream."""
    return list(zip(*(means.paper_view for means in found), strict=True))
