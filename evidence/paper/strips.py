"""Each free cell as a strip: a dot a stream, a line for the paper."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from evidence.paper import figure_2, figure_13
from evidence.paper.findings import PaperFindings

REACH = 4.0  # standard deviations from the middle of a strip to its end


class Strip(NamedTuple):
    """name, note: at its ends. dots, paper: places from 0 to 100 along it."""

    name: str
    dots: tuple[float, ...]
    paper: float
    note: str


def strips(found: PaperFindings) -> list[Strip]:
    """Figure 2's free cells, then figure 13's."""
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
    """The streams' mean in the middle."""
    mean, spread = fmean(simulated), stdev(simulated)

    def place(value: float) -> float:
        off = (value - mean) / spread if spread else 0.0
        return round(50 + 50 * min(max(off / REACH, -1.0), 1.0), 2)

    note = f"paper {published:.1f}, mean {mean:.1f}, spread {spread:.2f}"
    return Strip(name, tuple(place(value) for value in simulated), place(published), note)
