"""Several connectors of one engine: which one loads, and when blocks are freed (vLLM 0.33.0)."""

from kvsim.engine.connectors.connector import (
    NO_MATCH,
    Connector,
    Decided,
    RemoteMatch,
    Report,
)
from kvsim.engine.connectors.multi import MultiConnector
from kvsim.request import Request
from kvsim.sequence import Sequence


class Scripted(Connector):
    """A connector with scripted answers that records its calls."""

    def __init__(self, match: RemoteMatch | None, *, keeps: bool) -> None:
        self.match, self.keeps = match, keeps
        self.asked = 0
        self.allocations: list[RemoteMatch] = []
        self.heard: list[Report] = []
        self.next = Report()

    def matched(self, seq: Sequence, device_tokens: int) -> RemoteMatch | None:
        self.asked += 1
        return self.match

    def allocated(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        self.allocations.append(match)

    def scheduled(self, step: Decided) -> None: ...

    def finished(self, seq: Sequence) -> bool:
        return self.keeps

    def returned(self, report: Report, now_ps: int) -> None:
        self.heard.append(report)

    def launch(self, now_ps: int, compute_ps: int) -> int:
        return now_ps

    def launched(self, now_ps: int, end_ps: int) -> None: ...

    def poll(self, now_ps: int) -> Report:
        report, self.next = self.next, Report()
        return report

    @property
    def busy(self) -> bool:
        return False


def sequence() -> Sequence:
    return Sequence(Request("s", 0, 8, 1), 0)


def test_multi_connector_loads_from_the_first_connector_with_a_hit() -> None:
    empty = Scripted(NO_MATCH, keeps=False)
    first = Scripted(RemoteMatch(4, waits=True), keeps=False)
    second = Scripted(RemoteMatch(6, waits=False), keeps=False)
    multi, seq = MultiConnector((empty, first, second), loads=True), sequence()
    match = multi.matched(seq, 0)
    assert match == RemoteMatch(4, waits=True)
    multi.allocated(seq, 0, match)
    assert [each.allocations for each in (empty, first, second)] == [
        [NO_MATCH], [RemoteMatch(4, waits=True)], [NO_MATCH],
    ]  # fmt: skip


def test_pending_lookup_skips_the_sequence_and_later_connectors() -> None:
    first = Scripted(RemoteMatch(4, waits=True), keeps=False)
    unsure, last = Scripted(None, keeps=False), Scripted(NO_MATCH, keeps=False)
    assert MultiConnector((first, unsure, last), loads=True).matched(sequence(), 0) is None
    assert (first.asked, unsure.asked, last.asked) == (1, 1, 0)


def test_blocks_are_held_until_every_connector_releases_them() -> None:
    one, two, none = (Scripted(NO_MATCH, keeps=keeps) for keeps in (True, True, False))
    multi, seq = MultiConnector((one, two, none), loads=True), sequence()
    assert multi.finished(seq)
    one.next = Report(sent=(seq,))
    early = multi.poll(0)
    assert early.sent == ()
    two.next = Report(sent=(seq,), jobs=(3,))
    late = multi.poll(1)
    assert (late.sent, late.jobs) == ((seq,), (3,))
    multi.returned(late, 1)
    assert one.heard == [Report()]
    assert two.heard == [Report(sent=(seq,), jobs=(3,))]
    assert not MultiConnector((none,), loads=True).finished(sequence())
