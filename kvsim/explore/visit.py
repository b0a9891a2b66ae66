"""What an open page holds: a state, pinned runs, a sweep; all of it in its address."""

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from kvsim.explore.desk import Desk
from kvsim.explore.state import State, read_query

PIN, SWEEP = "pin", "sweep"
MOST_PINS = 4


class Visit(NamedTuple):
    """pins: states as their queries. sweep: `a.b=lo:hi:n` of this very state, or empty."""

    state: State
    pins: tuple[str, ...] = ()
    sweep: str = ""

    def query(self, desk: Desk) -> str:
        """The address behind the question mark."""
        more = [(PIN, pin) for pin in self.pins] + ([(SWEEP, self.sweep)] if self.sweep else [])
        parts = [self.state.query(desk.bases), urlencode(more)]
        return "?" + "&".join(filter(None, parts))

    def stored(self) -> dict[str, Any]:
        """As the browser keeps it."""
        return {**self.state._asdict(), "pins": list(self.pins), "sweep": self.sweep}

    @classmethod
    def restored(cls, held: dict[str, Any]) -> "Visit":
        """Out of what the browser kept."""
        return cls(State(held["base"], held["table"]), tuple(held["pins"]), held["sweep"])

    @classmethod
    def at(cls, query: str, desk: Desk) -> "Visit":
        """Out of an address; InputError where it means none."""
        pairs = parse_qsl(query.removeprefix("?"), keep_blank_values=True)
        pins = [value for key, value in pairs if key == PIN][:MOST_PINS]
        for pin in pins:
            read_query(pin, desk.bases, desk.default)
        state = read_query(query, desk.bases, desk.default)
        sweep = next((value for key, value in pairs if key == SWEEP), "")
        if sweep:
            desk.sweep_task(state, sweep)
        return cls(state, tuple(pins), sweep)
