"""Several connectors of one engine (vLLM 0.33.0, kv_transfer/kv_connector/v1/multi_connector.py).

A lookup asks the connectors in order. The first one with a hit loads; the others are called as
after a miss. If the lookup of one is pending, the sequence is skipped, and the later connectors are
not asked. All of them store. The blocks of a finished sequence are held until every connector that
needs them has reported the sequence.
"""

from collections import Counter
from collections.abc import Callable

from kvsim.engine.connectors.connector import (
    NO_MATCH,
    NOTHING,
    Connector,
    Decided,
    DeviceBlocks,
    RemoteMatch,
    Report,
)
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.totals import TierTotals
from kvsim.sequence import Sequence


class MultiConnector(Connector):
    """Combines `connectors`, which are asked in this order; all are polled.

    loads: as in `Connector`, for the combined role.
    """

    def __init__(self, connectors: tuple[Connector, ...], *, loads: bool) -> None:
        self._connectors = connectors
        self.loads = loads
        self.recomputes_failed = any(each.recomputes_failed for each in connectors)
        self.circles = any(each.circles for each in connectors)
        self.hears = any(each.hears for each in connectors)
        self.idle_ps, self.poll_ps = connectors[0].idle_ps, connectors[0].poll_ps
        self.empty_poll_ps = connectors[0].empty_poll_ps
        self._chosen: dict[Sequence, Connector] = {}
        self._keepers: Counter[Sequence] = Counter()  # those that keep blocks, less one

    def record(self, journal: ConnectorJournal) -> None:
        super().record(journal)
        for each in self._connectors:
            each.record(journal)

    def attach(self, device: DeviceBlocks) -> None:
        super().attach(device)
        for each in self._connectors:
            each.attach(device)

    def on_news(self, woken: Callable[[], None]) -> None:
        super().on_news(woken)
        for each in self._connectors:
            each.on_news(woken)

    # --- the scheduler half ---------------------------------------------------------------------

    def take_storage_tokens(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> int:
        return self._chosen[seq].take_storage_tokens(seq, device_tokens, match)

    def begin(self, now_ps: int) -> None:
        for each in self._connectors:
            each.begin(now_ps)

    def matched(self, seq: Sequence, device_tokens: int) -> RemoteMatch | None:
        found = NO_MATCH
        for each in self._connectors:
            match = each.matched(seq, device_tokens)
            if match is None:
                return None
            if match.tokens and not found.tokens:
                found = match
                self._chosen[seq] = each
        return found

    def allocated(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        chosen = self._chosen[seq] if match.tokens else None
        for each in self._connectors:
            each.allocated(seq, device_tokens, match if each is chosen else NO_MATCH)

    def scheduled(self, step: Decided) -> None:
        for each in self._connectors:
            each.scheduled(step)

    def finished(self, seq: Sequence) -> bool:
        keepers = sum([each.finished(seq) for each in self._connectors])
        if keepers > 1:
            self._keepers[seq] = keepers - 1
        self._chosen.pop(seq, None)
        return keepers > 0

    def returned(self, report: Report, now_ps: int) -> None:
        parts = report.parts or (NOTHING,) * len(self._connectors)
        for each, part in zip(self._connectors, parts, strict=True):
            each.returned(part, now_ps)

    def quiet_steps(self, step: Decided, limit: int) -> int:
        for each in self._connectors:
            limit = each.quiet_steps(step, limit)
        return limit

    def totals(self) -> tuple[TierTotals, ...]:
        return tuple(total for each in self._connectors for total in each.totals())

    def close(self, now_ps: int) -> None:
        for each in self._connectors:
            each.close(now_ps)

    # --- the worker half ------------------------------------------------------------------------

    def launch(self, now_ps: int, compute_ps: int) -> int:
        for each in self._connectors:
            now_ps = each.launch(now_ps, compute_ps)
        return now_ps

    def launched(self, now_ps: int, end_ps: int) -> None:
        for each in self._connectors:
            each.launched(now_ps, end_ps)

    def poll(self, now_ps: int) -> Report:
        parts = tuple(each.poll(now_ps) for each in self._connectors)
        if not any(map(any, parts)):
            return NOTHING
        return Report(
            tuple(seq for part in parts for seq in part.loaded),
            tuple(seq for part in parts for seq in part.failed),
            tuple(seq for part in parts for seq in part.sent if self._freed(seq)),
            tuple(job for part in parts for job in part.jobs),
            parts,
        )

    def _freed(self, seq: Sequence) -> bool:
        """Note that one connector has released the blocks of `seq`; returns whether it was the last
        one.
        """
        if not self._keepers[seq]:
            del self._keepers[seq]
            return True
        self._keepers[seq] -= 1
        return False

    def quiet_until(self, now_ps: int) -> int:
        """See `Connector.quiet_until`. If one connector is busy, idle ones find nothing before it
        or an arrival changes something.
        """
        busy = [each for each in self._connectors if each.busy]
        return min(each.quiet_until(now_ps) for each in busy or self._connectors)

    @property
    def busy(self) -> bool:
        return any(each.busy for each in self._connectors)
