"""The state of one open page; its address encodes all of it."""

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from kvsim.explore.page_context import PageContext
from kvsim.explore.state import ScenarioState, read_query

PIN, SWEEP = "pin", "sweep"
MOST_PINS = 4


class PageVisit(NamedTuple):
    """A page as opened in the explorer. state: its scenario. pins: URL queries of the scenarios
    pinned to it. sweep: the sweep of its scenario as `a.b=lo:hi:n`, or empty.
    """

    state: ScenarioState
    pins: tuple[str, ...] = ()
    sweep: str = ""

    def query(self, context: PageContext) -> str:
        """The query part of the address (after the question mark)."""
        more = [(PIN, pin) for pin in self.pins] + ([(SWEEP, self.sweep)] if self.sweep else [])
        parts = [self.state.query(context.starting_points), urlencode(more)]
        return "?" + "&".join(filter(None, parts))

    def stored(self) -> dict[str, Any]:
        """The visit as stored by the browser."""
        return {**self.state._asdict(), "pins": list(self.pins), "sweep": self.sweep}

    @classmethod
    def restored(cls, held: dict[str, Any]) -> "PageVisit":
        """The visit in the data that a browser stored."""
        return cls(ScenarioState(held["base"], held["table"]), tuple(held["pins"]), held["sweep"])

    @classmethod
    def at(cls, query: str, context: PageContext) -> "PageVisit":
        """The visit in an address; InputError if the address is invalid."""
        pairs = parse_qsl(query.removeprefix("?"), keep_blank_values=True)
        pins = [value for key, value in pairs if key == PIN][:MOST_PINS]
        for pin in pins:
            read_query(pin, context.starting_points, context.default)
        state = read_query(query, context.starting_points, context.default)
        sweep = next((value for key, value in pairs if key == SWEEP), "")
        if sweep:
            context.sweep_task(state, sweep)
        return cls(state, tuple(pins), sweep)
