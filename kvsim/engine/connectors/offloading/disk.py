"""Files behind host memory: threads that read and write chunks, and one that looks for files.

vLLM 0.33, v1/kv_offload/tiering with a tier of type "fs". Each job is one task of one thread, its
chunks one after the other; a chunk whose file is there already is passed over. Reading and writing
threads have queues of their own, and take from the other's when theirs is empty. Files are never
deleted.
"""

from collections import deque

from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.lane import Lane
from kvsim.engine.connectors.offloading.chunk import HostChunk
from kvsim.engine.connectors.totals import TierTotals
from kvsim.sequence import Sequence

NEVER = 1 << 62


class DiskJob:
    """Chunks that one thread reads from files, or writes to them."""

    __slots__ = ("chunks", "end_ps", "number", "read", "seq")

    def __init__(self, number: int, seq: Sequence, chunks: list[HostChunk], *, read: bool) -> None:
        self.number, self.seq, self.chunks, self.read = number, seq, chunks, read
        self.end_ps = NEVER


class Disk:
    """A folder of chunks. read, write: how long one chunk takes, no matter who else copies.
    chunk_bytes: of a slot of host memory. lookup_ps: to look for one file.
    """

    def __init__(
        self,
        read: Lane,
        write: Lane,
        chunk_bytes: int,
        lookup_ps: int,
        read_threads: int,
        write_threads: int,
    ) -> None:
        self._chunk_bytes = chunk_bytes
        self.num_read = self.num_written = 0
        self._read_ps, self._write_ps = (
            read.duration_ps(chunk_bytes),
            write.duration_ps(chunk_bytes),
        )
        self._lookup_ps = lookup_ps
        self._idle = {True: read_threads, False: write_threads}
        self._queues: dict[bool, deque[DiskJob]] = {True: deque(), False: deque()}
        self._working: list[tuple[DiskJob, bool]] = []  # and whether a reading thread has it
        self._ended: list[DiskJob] = []
        self._made = 0
        self._files: dict[int, int] = {}  # since when
        self._looking_ps = 0
        self._answers: dict[int, tuple[int, bool]] = {}
        self._asking: dict[int, set[Sequence]] = {}
        self._questions: dict[int, None] = {}
        self.num_open = 0  # jobs that no report has named
        self.journal: ConnectorJournal | None = None
        self.tick_ps = 1

    # --- files ----------------------------------------------------------------------------------

    def answer(self, seq: Sequence, key: int, now_ps: int) -> bool | None:
        """Whether there is a file; None: that is not known yet, and asked at the end of the
        schedule. An answer stands as long as somebody who asked lives.
        """
        self._asking.setdefault(key, set()).add(seq)
        known = self._answers.get(key)
        if known is None:
            self._questions[key] = None
            return None
        return known[1] if known[0] <= now_ps else None

    def ask(self, now_ps: int) -> None:
        """The new questions go to the thread that looks."""
        if not self._questions:
            return
        start_ps = max(now_ps, self._looking_ps)
        num = len(self._questions)
        self._looking_ps = start_ps + num * self._lookup_ps
        found = 0
        for key in self._questions:
            there = self._files.get(key, NEVER) <= now_ps
            found += there
            self._answers[key] = self._looking_ps, there
        self._questions = {}
        if self.journal is not None:
            self.journal.add("asked", [self._looking_ps // self.tick_ps, num, found])

    def finished(self, seq: Sequence, keys: list[int]) -> None:
        """A sequence is done, which may have asked for these."""
        for key in keys:
            asking = self._asking.get(key)
            if asking is None:
                continue
            asking.discard(seq)
            if not asking:
                del self._asking[key]
                self._answers.pop(key, None)

    @property
    def num_files(self) -> int:
        """Files so far."""
        return len(self._files)

    # --- jobs -----------------------------------------------------------------------------------

    def submit(self, seq: Sequence, chunks: list[HostChunk], now_ps: int, *, read: bool) -> None:
        """A job for the next thread that is free."""
        self._advance(now_ps)
        job = DiskJob(self._made, seq, chunks, read=read)
        self._made += 1
        self.num_open += 1
        self._queues[read].append(job)
        for reader in (read, not read):
            if self._idle[reader]:
                self._idle[reader] -= 1
                self._begin(reader, now_ps)
                return

    def _begin(self, reader: bool, now_ps: int) -> bool:
        """A thread takes a job; False: there is none."""
        queue = self._queues[reader] or self._queues[not reader]
        if not queue:
            return False
        job = queue.popleft()
        job.end_ps = now_ps
        for chunk in job.chunks:
            if job.read:
                job.end_ps += self._read_ps
                self.num_read += 1
            elif not self._files.get(chunk.key, NEVER) <= now_ps:
                job.end_ps += self._write_ps
                self.num_written += 1
                self._files.setdefault(chunk.key, job.end_ps)
        self._working.append((job, reader))
        if self.journal is not None:
            name, tick_ps = "load" if job.read else "store", self.tick_ps
            times = [now_ps // tick_ps, job.end_ps // tick_ps]
            self.journal.add("tier", [job.number, name, job.seq.id, job.chunks, *times])
        return True

    def _advance(self, now_ps: int) -> None:
        """Threads end their jobs up to now_ps, and take the next ones."""
        while self._working:
            entry = min(self._working, key=lambda each: (each[0].end_ps, each[0].number))
            job, reader = entry
            if job.end_ps > now_ps:
                return
            self._working.remove(entry)
            self._ended.append(job)
            if not self._begin(reader, job.end_ps):
                self._idle[reader] += 1

    def totals(self) -> TierTotals:
        """What it did so far, chunks of all ranks."""
        return TierTotals(
            "file-system",
            None,
            self.num_written * self._chunk_bytes,
            self.num_read * self._chunk_bytes,
            self.num_written * self._write_ps,
            self.num_read * self._read_ps,
        )

    def reports(self, now_ps: int) -> list[DiskJob]:
        """The jobs that have ended by now_ps and no report has named yet."""
        self._advance(now_ps)
        ended, self._ended = self._ended, []
        self.num_open -= len(ended)
        if self.journal is not None:
            for job in ended:
                self.journal.add("tier_done", job.number)
        return ended
