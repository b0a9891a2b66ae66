"""Files as a tier after host memory: threads that read and write chunks, and one that looks up
files.

vLLM 0.33, v1/kv_offload/tiering with a tier of type "fs". One thread runs each job, one chunk after
the other; writing skips a chunk with an existing file. Reading and writing threads have separate
queues, and take from the other queue if theirs is empty. Files are never deleted.
"""

from collections import deque
from functools import partial

from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.lane import Lane
from kvsim.engine.connectors.offloading.chunk import HostChunk
from kvsim.engine.connectors.offloading.folder import NEVER, Folder
from kvsim.engine.connectors.totals import TierTotals
from kvsim.sequence import Sequence


class DiskJob:
    """Chunks that one thread reads from files, or writes to files. reader: whether a reading thread
    runs it.
    """

    __slots__ = ("chunks", "end_ps", "number", "read", "reader", "seq")

    def __init__(self, number: int, seq: Sequence, chunks: list[HostChunk], *, read: bool) -> None:
        self.number, self.seq, self.chunks, self.read = number, seq, chunks, read
        self.end_ps = NEVER
        self.reader = read


class Disk:
    """The threads of one engine that read and write chunk files in a folder.

    read, write: give the time of one chunk in a thread. chunk_bytes: size of a slot of host memory.
    lookup_ps: time to look up one file. folder: the files; None: this engine has its own folder.
    """

    def __init__(
        self,
        read: Lane,
        write: Lane,
        chunk_bytes: int,
        lookup_ps: int,
        read_threads: int,
        write_threads: int,
        folder: Folder | None = None,
    ) -> None:
        self.folder = folder or Folder()
        self._number = self.folder.joined()
        self._chunk_bytes = chunk_bytes
        self.num_read = self.num_written = 0
        self._read_ps, self._write_ps = (
            read.duration_ps(chunk_bytes),
            write.duration_ps(chunk_bytes),
        )
        self._lookup_ps = lookup_ps
        self._idle = {True: read_threads, False: write_threads}
        self._queues: dict[bool, deque[DiskJob]] = {True: deque(), False: deque()}
        self._writing: dict[DiskJob, None] = {}
        self._ended: list[DiskJob] = []
        self._closed = False
        self._made = 0
        self._looking_ps = 0
        self._answers: dict[int, tuple[int, bool]] = {}
        self._asking: dict[int, set[Sequence]] = {}
        self._questions: dict[int, None] = {}
        self.num_open = 0  # jobs that no report has named
        self.journal: ConnectorJournal | None = None
        self.tick_ps = 1

    # --- files ----------------------------------------------------------------------------------

    def answer(self, seq: Sequence, key: int, now_ps: int) -> bool | None:
        """Whether the file of `key` exists; None: not known yet, so it is looked up after this
        schedule().

        An answer is valid as long as one of the sequences that asked is unfinished.
        """
        self._asking.setdefault(key, set()).add(seq)
        known = self._answers.get(key)
        if known is None:
            self._questions[key] = None
            return None
        return known[1] if known[0] <= now_ps else None

    def ask(self, now_ps: int) -> None:
        """Send the new questions to the lookup thread."""
        if not self._questions:
            return
        start_ps = max(now_ps, self._looking_ps)
        num = len(self._questions)
        self._looking_ps = start_ps + num * self._lookup_ps
        found = 0
        for key in self._questions:
            there = self.folder.has(key, now_ps)
            found += there
            self._answers[key] = self._looking_ps, there
        self._questions = {}
        if self.journal is not None:
            self.journal.add("asked", [self._looking_ps // self.tick_ps, num, found])

    def finished(self, seq: Sequence, keys: list[int]) -> None:
        """`seq` has finished: drop answers for `keys` that no other sequence asked for."""
        for key in keys:
            asking = self._asking.get(key)
            if asking is None:
                continue
            asking.discard(seq)
            if not asking:
                del self._asking[key]
                self._answers.pop(key, None)

    # --- jobs -----------------------------------------------------------------------------------

    def submit(self, seq: Sequence, chunks: list[HostChunk], now_ps: int, *, read: bool) -> None:
        """Queue a job of `seq` that reads or writes `chunks`; an idle thread starts it at once."""
        self.folder.advance(now_ps)
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
        """Let a free thread start the next job; False: there is no job."""
        queue = self._queues[reader] or self._queues[not reader]
        if not queue:
            return False
        job = queue.popleft()
        job.reader = reader
        self._start(job, now_ps)
        self.folder.started(job.end_ps, self._number, job.number, partial(self._end, job))
        if self.journal is not None:
            name, tick_ps = "load" if job.read else "store", self.tick_ps
            times = [now_ps // tick_ps, job.end_ps // tick_ps]
            self.journal.add("tier", [job.number, name, job.seq.id, job.chunks, *times])
        return True

    def _start(self, job: DiskJob, now_ps: int) -> None:
        """Set the end of a job that starts now, and the time at which each file it writes is
        complete.
        """
        moved = job.chunks
        if not job.read:
            moved = [chunk for chunk in moved if not self.folder.has(chunk.key, now_ps)]
        num = len(moved)
        chunk_ps = self._read_ps if job.read else self._write_ps
        link_ps = self.folder.link_end_ps(num * self._chunk_bytes, now_ps, read=job.read)
        job.end_ps = max(now_ps + num * chunk_ps, link_ps if num else 0)
        if job.read:
            self.num_read += num
            return
        self.num_written += num
        self._writing[job] = None
        for place, chunk in enumerate(moved, 1):
            self.folder.writes(chunk.key, now_ps + (job.end_ps - now_ps) * place // num)

    def _end(self, job: DiskJob) -> None:
        """Note that a thread has ended `job`, and let it take the next one."""
        if self._closed:
            return
        self._writing.pop(job, None)
        self._ended.append(job)
        if not self._begin(job.reader, job.end_ps):
            self._idle[job.reader] += 1

    def close(self, now_ps: int) -> None:
        """The engine has died: its threads stop, and files that they were writing are lost."""
        self._closed = True
        for queue in self._queues.values():
            queue.clear()
        for job in self._writing:
            for chunk in job.chunks:
                self.folder.lost(chunk.key, now_ps)

    def totals(self) -> TierTotals:
        """Totals of reads and writes so far, in bytes of all ranks."""
        return TierTotals(
            "file-system",
            None,
            self.num_written * self._chunk_bytes,
            self.num_read * self._chunk_bytes,
            self.num_written * self._write_ps,
            self.num_read * self._read_ps,
        )

    def reports(self, now_ps: int) -> list[DiskJob]:
        """Jobs that have ended by now_ps and were not returned by an earlier call."""
        self.folder.advance(now_ps)
        ended, self._ended = self._ended, []
        self.num_open -= len(ended)
        if self.journal is not None:
            for job in ended:
                self.journal.add("tier_done", job.number)
        return ended
