"""Measures how long sequences wait for loads and for pending lookups."""

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.connection import Connection
from kvsim.engine.tier_books import TierBooks
from kvsim.sequence import Sequence


class LoadWaits:
    """The waits of one engine's sequences. books: accounting of its tiers; None without tiers.

    num_waits, wait_ps: see `RunTotals`.
    """

    def __init__(self, connection: Connection, books: TierBooks | None) -> None:
        self._connection, self._books = connection, books
        self._since: dict[Sequence, int] = {}
        self.num_waits = self.wait_ps = 0

    def follow(self, plan: Plan, now_ps: int) -> None:
        """Note which sequences begin to wait for a load or a lookup in `plan`, scheduled at now_ps,
        and which have waited.
        """
        since, books, connection = self._since, self._books, self._connection
        for seq in connection.put_off:
            since.setdefault(seq, now_ps)
        for seq in connection.loads:
            since.setdefault(seq, now_ps)
        if books is not None:
            for seq, hit in connection.found:
                books.found(seq, hit)
        if since:
            for seq, _, _ in plan.admitted:
                if seq in since:
                    wait_ps = now_ps - since.pop(seq)
                    self.num_waits += 1
                    self.wait_ps += wait_ps
                    if books is not None:
                        books.waited(seq, wait_ps)

    def ended(self, seq: Sequence) -> None:
        """Drop the wait of `seq`, which ended with an error."""
        self._since.pop(seq, None)
