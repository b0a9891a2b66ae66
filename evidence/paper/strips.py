"""Strip plots of the free cells: a dot per simulated stream, and a line for the paper's value."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from evidence.paper import figure_2, figure_13
from evidence.paper.findings import PaperFindings

REACH = 4.0  # standard deviations from the middle of a strip to its end


class Strip(NamedTuple):
    """One strip plot. name, note: texts at its ends. dots, paper: positions from 0 to 100."""

    name: str
    dots: tuple[float, ...]
    paper: float
    note: str


def strips(found: PaperFindings) -> list[Strip]:
    """Strip plots of the free cells of figure 2, then of figure 13."""
    published, rows = figure_2.free_cells(found.figure_2)
    made = [
        strip(name, value, cell)
        for (name, value), cell in zip(published.items(), zip(*rows, strict=True), strict=True)
    ]
    for name in figure_13.FREE:
        cell = [means.running for means in found.figure_13[name]]
        made.append(strip(f"{name}: batched", figure_13.SHAREGPT[name], cell))
    return made


def strip(name: str, published: float, simulated: Sequence[float]) -> Strip:
    """A strip plot with the streams' mean in the centre."""
    mean, spread = fmean(simulated), stdev(simulated)

    def place(value: float) -> float:
        off = (value - mean) / spread if spread else 0.0
        return round(50 + 50 * min(max(off / REACH, -1.0), 1.0), 2)

    note = f"paper {published:.1f}, mean {mean:.1f}, spread {spread:.2f}"
    return Strip(name, tuple(place(value) for value in simulated), place(published), note)
