"""How much of Orca's waste its buddy allocator causes: an experiment that the paper does not have.

A saturated stream runs under contiguous buffers of exactly known size (placed first fit and best
fit at token granularity), and under buffers that double. The result is compared with an independent
re-implementation, which ran a single stream.
"""

from collections.abc import Iterator

from evidence.paper.check import Check
from evidence.paper.experiment import Means, Setting, mean_of, orca

SOURCE = "re-implementation of the PagedAttention artifact"
RATE_PER_S = 4.0
DOUBLING = {"kind": "doubling", "initial_tokens": 64, "placement": "first-fit"}
SYSTEMS = {
    "exact size, first fit": orca("exact", "first-fit"),
    "exact size, best fit": orca("exact", "best-fit"),
    "doubling from 64, first fit": {"scheduler": {"kind": "orca"}, "allocator": [DOUBLING]},
}
CELLS = ("token states", "reservation", "over-provisioned")
PUBLISHED = {
    "exact size, first fit": (50.4, 33.0, 0.0),
    "exact size, best fit": (51.3, 33.4, 0.0),
    "doubling from 64, first fit": (61.3, 15.4, 11.0),
}


def simulate(setting: Setting) -> dict[str, Means]:
    """Mean shares of each system over the streams."""
    return {
        name: mean_of(setting.watch(tables, setting.sharegpt, RATE_PER_S, setting.few))
        for name, tables in SYSTEMS.items()
    }


def checks(found: dict[str, Means]) -> Iterator[Check]:
    """Checks that only report the simulated cells."""
    for name, published in PUBLISHED.items():
        for cell, value, simulated in zip(CELLS, published, found[name].paper_view, strict=False):
            yield Check(
                SOURCE,
                f"{name}: {cell}",
                value,
                simulated,
                "% of KV memory",
                None,
                why="not published by the paper; one other stream, its first buffer not known",
            )
