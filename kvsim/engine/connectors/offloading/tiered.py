"""The offloading connector with files in a tier after host memory (vLLM 0.33:
TieringOffloadingSpec).

A chunk stored in host memory is written to a file at once. A chunk found only in a file is first
read into host memory. It is loaded from there when its sequence is scheduled again.
"""

from collections.abc import Iterator

from kvsim.engine.connectors.connector import Decided, RemoteMatch, Report
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.offloading.chunk import ChunkContent, HostChunk
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.connectors.offloading.disk import Disk
from kvsim.engine.connectors.offloading.lookup import ABSENT, READY, UNKNOWN, WRITING
from kvsim.engine.connectors.offloading.settings import OffloadSettings
from kvsim.engine.connectors.offloading.worker import Worker
from kvsim.engine.connectors.totals import TierTotals
from kvsim.sequence import Sequence


class TieredConnector(OffloadingConnector):
    """Offloads to host memory, and from there to files. disk: the file tier."""

    def __init__(self, settings: OffloadSettings, worker: Worker, disk: Disk) -> None:
        super().__init__(settings, worker, keys=disk.folder.keys)
        self.disk = disk
        self._now_ps = 0
        self._promoted: dict[Sequence, list[HostChunk]] = {}
        self._asked: dict[Sequence, dict[int, None]] = {}
        self._read_spans: dict[Sequence, list[tuple[int, int]]] = {}  # (first, last) tokens

    def record(self, journal: ConnectorJournal) -> None:
        super().record(journal)
        self.disk.journal = journal

    def begin(self, now_ps: int) -> None:
        super().begin(now_ps)
        self._now_ps = now_ps
        self._take_reports()

    def _take_reports(self) -> None:
        for job in self.disk.reports(self._now_ps):
            if job.read:
                self.pool.written(job.chunks)
            else:
                self.pool.unpin(job.chunks)

    def _states(self, seq: Sequence, group: int, first: int, last: int) -> Iterator[int]:
        for place in range(first, last):
            yield self._state(seq, group, place)

    def _state(self, seq: Sequence, group: int, place: int) -> int:
        key = self.keys.key(seq, group, place)
        chunk = self.pool.get(key)
        if chunk is not None:
            return READY if chunk.ready else WRITING
        self._asked.setdefault(seq, {})[key] = None
        there = self.disk.answer(seq, key, self._now_ps)
        if there is None:
            self._settled = False
            return UNKNOWN
        if not there:
            return ABSENT
        self._settled = False
        size = self.settings.groups[group].chunk_tokens
        state = self._promote(seq, ChunkContent(key, (place + 1) * size, group))
        if state == WRITING:
            spans = self._read_spans.setdefault(seq, [])
            spans.append((place * size, (place + 1) * size))
        return state

    def take_storage_tokens(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> int:
        tokens, end = 0, device_tokens
        for first, last in sorted(self._read_spans.pop(seq, [])):
            last = min(last, device_tokens + match.tokens)
            tokens += max(0, last - max(first, end))
            end = max(end, last)
        return tokens

    def _promote(self, seq: Sequence, content: ChunkContent) -> int:
        """Allocate a slot of host memory for a chunk found in a file; returns WRITING, or ABSENT if
        there is no room.
        """
        evicted: list[HostChunk] = []
        on_evict = self.pool.on_evict
        self.pool.on_evict = evicted.append
        promoted = self.pool.offer(seq, [content])
        self.pool.on_evict = on_evict
        if self.journal is not None:
            self.journal.add(
                "promote", [seq.id, content.key, None if promoted is None else evicted]
            )
        if promoted is None:
            return ABSENT
        self._promoted.setdefault(seq, []).extend(promoted)
        return WRITING

    def scheduled(self, step: Decided) -> None:
        done = self.stores.finishing
        super().scheduled(step)
        for seq in done:
            self.disk.finished(seq, list(self._asked.pop(seq, {})))
            self._read_spans.pop(seq, None)
        for seq, chunks in self._promoted.items():
            self.disk.submit(seq, chunks, self._now_ps, read=True)
        self._promoted = {}
        self.disk.ask(self._now_ps)

    def returned(self, report: Report, now_ps: int) -> None:
        stored = [self.jobs.get(number) for number in report.jobs]
        super().returned(report, now_ps)
        for job in stored:
            if job.store:
                for chunk in job.chunks:
                    self.pool.pin(chunk)
                self.disk.submit(job.seq, job.chunks, now_ps, read=False)

    def totals(self) -> tuple[TierTotals, ...]:
        return (*super().totals(), self.disk.totals())

    def close(self, now_ps: int) -> None:
        self.disk.close(now_ps)

    @property
    def busy(self) -> bool:
        return super().busy or self.disk.num_open > 0
