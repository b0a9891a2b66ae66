"""A published figure and the simulated one."""

from typing import Any, NamedTuple


class Check(NamedTuple):
    """A published figure next to the simulated one.

    source: where it was published. published, simulated: both in `unit`. tolerance: largest
    difference that passes; None: the figure is only reported, for the reason in `why`. spread: if
    `simulated` is a mean over several streams of requests, the standard deviation between the
    streams.
    """

    source: str
    quantity: str
    published: float
    simulated: float
    unit: str
    tolerance: float | None
    spread: float | None = None
    why: str = ""
    streams: int = 1

    @property
    def difference(self) -> float:
        """Simulated minus published figure."""
        return self.simulated - self.published

    @property
    def ok(self) -> bool:
        """Whether the difference is within the tolerance; True without a tolerance."""
        return self.tolerance is None or abs(self.difference) <= self.tolerance

    def as_dict(self) -> dict[str, Any]:
        """The check's entry in the JSON answer."""
        found = {
            "source": self.source,
            "quantity": self.quantity,
            "published": self.published,
            "simulated": round(self.simulated, 6),
            "difference": round(self.difference, 6),
            "unit": self.unit,
            "tolerance": self.tolerance,
            "ok": self.ok,
            "spread": None if self.spread is None else round(self.spread, 6),
            "streams": self.streams,
        }
        return found if self.tolerance is not None else {**found, "ok": None, "why": self.why}


def within(
    source: str,
    quantity: str,
    span: tuple[float, float],
    simulated: float,
    unit: str,
    margin: float = 0.0,
) -> Check:
    """A check that a simulated figure is in a published range: tolerance is half the range's width
    plus the margin, around its middle.
    """
    low, high = span
    name = f"{quantity} (published as {low:g} to {high:g})"
    return Check(source, name, (low + high) / 2, simulated, unit, (high - low) / 2 + margin)
