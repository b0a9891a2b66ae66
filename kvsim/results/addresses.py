"""Log of the addresses of every sequence's KV in the pool over time, and of events."""

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

# Beyond so many, no more stays are written down: the map then ends there, and says so.
MOST_STAYS = 4_000_000
HELD, KEPT = 0, 1
KINDS = ("held", "cached")
ADDRESS_COLUMNS = ("address", "num_bytes", "start_ps", "end_ps", "request", "kind")
COUNTS = (
    *("preemptions", "recomputed_tokens", "copied_bytes", "swapped_bytes"),
    *("query_tokens", "hit_tokens"),
)
EVENT_COLUMNS = ("time_ps", *COUNTS)
HIT, EVICTED, LEFT = 0, 1, 2
NODE_EVENTS = ("hit", "evicted", "left")
NODE_COLUMNS = ("time_ps", "event", "tokens", "nodes", "age_ps")
HOLE_COLUMNS = ("time_ps", "largest_hole_bytes", "need_bytes")


class Addresses:
    """The log: flat integers during a run, tables afterwards.

    Addresses are bytes from the pool's start. kind: "held" by a running sequence, or "cached":
    free, with content that can still be hit.
    """

    def __init__(self) -> None:
        self._stays = array("q")
        self._ids: dict[str, int] = {}
        self._events = array("q")
        self._counts: tuple[int, ...] = (0,) * len(COUNTS)
        self._holes = array("q")
        self._nodes = array("q")

    def lay(
        self, address: int, num_bytes: int, start_ps: int, end_ps: int, owner: str, kind: int
    ) -> None:
        """Log that `owner` had these bytes from start_ps to end_ps; ignored if no time passes."""
        if end_ps > start_ps:
            row = address, num_bytes, start_ps, end_ps, self.index(owner), kind
            self._stays.extend(row)

    def index(self, owner: str) -> int:
        """The number of `owner` in the log's rows."""
        return self._ids.setdefault(owner, len(self._ids))

    def lay_rows(self, rows: NDArray[np.int64]) -> None:
        """Log stays as rows (n, 6) of ADDRESS_COLUMNS, with request and kind as numbers; ignored if
        no time passes.
        """
        lasting = rows[:, 3] > rows[:, 2]
        if not lasting.all():
            rows = rows[lasting]
        self._stays.frombytes(rows.data.cast("B") if len(rows) else b"")

    def owned(self, pieces: Iterable[tuple[int, int]], owner: str) -> "array[int]":
        """The ranges (address, bytes) of an owner, as rows for `lay_again`."""
        index = self.index(owner)
        rows = array("q")
        for address, num_bytes in pieces:
            rows.extend((address, num_bytes, 0, 0, index, 0))
        return rows

    def lay_again(self, rows: "array[int]", start_ps: int, end_ps: int, kind: int) -> None:
        """Log a stay from start_ps to end_ps for each of `rows`; ignored if no time passes."""
        width = len(ADDRESS_COLUMNS)
        number = len(rows) // width
        if end_ps > start_ps:
            for column, value in ((2, start_ps), (3, end_ps), (5, kind)):
                rows[column::width] = array("q", [value]) * number
            self._stays.extend(rows)

    @property
    def full(self) -> bool:
        """Whether the log holds MOST_STAYS stays, its limit."""
        return self.room <= 0

    @property
    def room(self) -> int:
        """Number of stays that the log can still record."""
        return MOST_STAYS - len(self._stays) // len(ADDRESS_COLUMNS)

    def counted(self, now_ps: int, counts: tuple[int, ...]) -> None:
        """Log the run's totals so far, one for each of COUNTS."""
        if counts != self._counts:
            self._counts = counts
            self._events.extend((now_ps, *counts))

    def hole(self, now_ps: int, largest_bytes: int, need_bytes: int) -> None:
        """Log the largest hole in bytes while the head of the queue needs need_bytes."""
        if self._holes[-2:] != array("q", (largest_bytes, need_bytes)):
            self._holes.extend((now_ps, largest_bytes, need_bytes))

    def node(self, now_ps: int, event: int, tokens: int, nodes: int, age_ps: int) -> None:
        """Log an event of the radix tree, age_ps after the node's last use.

        A HIT has `tokens` tokens in `nodes` nodes on a path; a node of `tokens` tokens is EVICTED,
        or LEFT at the end.
        """
        if len(self._nodes) < MOST_STAYS * len(NODE_COLUMNS):
            self._nodes.extend((now_ps, event, tokens, nodes, age_ps))

    def table(self) -> "pd.DataFrame":
        """One row for each stay, sorted by its start."""
        import pandas as pd

        rows = np.frombuffer(self._stays, dtype=np.int64).reshape(-1, len(ADDRESS_COLUMNS))
        order = _by_start(rows[:, 2], rows[:, 0])
        columns: dict[str, object] = {}
        for column, name in enumerate(ADDRESS_COLUMNS):
            if name in ("request", "kind"):
                names = list(self._ids) if name == "request" else list(KINDS)
                codes = rows[:, column].astype(np.int32)[order]
                columns[name] = pd.Categorical.from_codes(codes, pd.Index(names, dtype=object))
            else:
                columns[name] = rows[:, column][order]
        return pd.DataFrame(columns, copy=False)  # each column whole, one after the other

    def events(self) -> "pd.DataFrame":
        """The totals so far, one row for each time at which a total changed."""
        return _frame(self._events, EVENT_COLUMNS)

    def holes(self) -> "pd.DataFrame":
        """Bytes that the head of the queue needed and bytes of the largest hole, at each change."""
        return _frame(self._holes, HOLE_COLUMNS)

    @property
    def has_nodes(self) -> bool:
        """Whether events of a radix tree were logged."""
        return bool(self._nodes)

    def nodes(self) -> "pd.DataFrame":
        """The events of the radix tree in order of time; no rows without a tree."""
        import pandas as pd

        frame = _frame(self._nodes, NODE_COLUMNS)
        names = pd.Index(list(NODE_EVENTS), dtype=object)
        codes = frame["event"].to_numpy("int32")
        frame["event"] = pd.Categorical.from_codes(codes, names)
        return frame


def _by_start(start_ps: NDArray[np.int64], address: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices (n,) that sort n stays by start, then by address.

    Stays are recorded in nearly this order. Two sorts by one key are then faster than one by two.
    """
    order = np.argsort(start_ps, kind="stable")
    ordered = start_ps[order]
    starts = np.zeros(len(order), dtype=np.int64)
    np.cumsum(ordered[1:] != ordered[:-1], out=starts[1:])
    place = address[order]
    place //= max(int(np.gcd.reduce(place)), 1)
    starts *= int(place.max(initial=0)) + 1
    starts += place
    return order[np.argsort(starts, kind="stable")]


def _frame(rows: "array[int]", columns: tuple[str, ...]) -> "pd.DataFrame":
    import pandas as pd

    flat = np.frombuffer(rows, dtype=np.int64)
    return pd.DataFrame(flat.reshape(-1, len(columns)), columns=list(columns))
