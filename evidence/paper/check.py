"""One published figure and the simulated one."""

from typing import Any, NamedTuple


class Check(NamedTuple):
    """source: where it was published. published, simulated: in `unit`. tolerance: the largest
    difference that passes, in `unit`; None: reported, not held, for the reason in `why`.

    spread: standard deviation of `simulated`, a mean, from one of `streams` streams of requests to
    another, where several were simulated.
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
        """Whether the difference is within the tolerance (always, without one)."""
        return self.tolerance is None or abs(self.difference) <= self.tolerance

    def as_dict(self) -> dict[str, Any]:
        """The entry of the JSON answer."""
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
    """A check that a figure is in a published range: its middle, plus or minus half its width and
    the margin.
    """
    low, high = span
    name = f"{quantity} (published as {low:g} to {high:g})"
    return Check(source, name, (low + high) / 2, simulated, unit, (high - low) / 2 + margin)
