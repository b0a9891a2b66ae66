"""Worker processes and their jobs. A job that is cancelled ends at once, with its process."""

import multiprocessing
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import Any, Literal

from kvsim.explore.task import WorkerTask
from kvsim.explore.worker import work

KEPT = 40  # answers
LOOK_EVERY_S = 0.05
# A page that asks no more is closed, and nobody waits for its job. (Browsers let a page that is not
# seen ask once a minute.)
PATIENCE_S = 90.0
OVER = ("done", "failed", "cancelled")


@dataclass
class Job:
    """A task in the pool. key: the name of its answer. progress: what is being done, how much of it
    is done, of how much. asked_s: the monotonic clock when a page last asked for it, in seconds.
    owners: the pages that wait for it.
    """

    key: str
    task: WorkerTask
    state: Literal["waiting", "running", "done", "failed", "cancelled"] = "waiting"
    progress: tuple[str, int, int] = ("waiting", 0, 1)
    answer: Any = None
    fault: str = ""
    asked_s: float = field(default_factory=time.monotonic)
    owners: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Whether the job will change no more."""
        return self.state in OVER

    def is_missed_by(self, owner: str) -> bool:
        """Whether the job was cancelled because no page seemed to wait, while this owner still
        does.
        """
        return self.state == "cancelled" and owner in self.owners

    @property
    def is_wanted(self) -> bool:
        """Whether a page waits for the job and has asked for it lately."""
        return bool(self.owners) and time.monotonic() - self.asked_s < PATIENCE_S


class WorkerPool:
    """A pool of `size` processes, started before their jobs. An owner has one job at a time."""

    def __init__(self, size: int = 2) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def ask(self, owner: str, key: str, task: WorkerTask) -> Job:
        """The job of this key, started if it is new, failed or was cancelled; the owner's earlier
        job is cancelled.
        """
        with self._lock:
            self._leave(owner, key)
            job = self._jobs.get(key)
            new = job is None or job.state in ("failed", "cancelled")
            if job is None or new:
                job = self._jobs[key] = Job(key, task)
            self._jobs.move_to_end(key)
            job.owners.add(owner)
            job.asked_s = time.monotonic()
            if new:  # with its owner: a thread drops a job that nobody waits for
                self._queue.put(job)
            for old in [k for k, each in self._jobs.items() if each.is_over][:-KEPT]:
                del self._jobs[old]
            return job

    def look(self, key: str | None) -> Job | None:
        """The job of this key, or None. A page that looks still waits for it."""
        with self._lock:
            job = self._jobs.get(key or "")
            if job is not None:
                job.asked_s = time.monotonic()
            return job

    def cancel(self, owner: str) -> None:
        """Cancel the job of this owner, unless another owner waits for it."""
        with self._lock:
            self._leave(owner, None)

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            for job in self._jobs.values():
                job.owners.clear()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _leave(self, owner: str, but: str | None) -> None:
        for job in self._jobs.values():
            if job.key != but:
                job.owners.discard(owner)

    def _serve(self) -> None:
        """One process after the other, a job at a time."""
        process, line = _started()
        while True:
            job = self._queue.get()
            if job is None:
                process.kill()
                process.join()
                return
            if not job.is_wanted:
                job.state = "cancelled"
                continue
            job.state = "running"
            try:
                line.send(job.task)
                alive = _followed(job, line)
            except (EOFError, OSError):
                job.fault, job.state, alive = "the process that simulated it ended", "failed", False
            if not alive:
                process.kill()
                process.join()
                line.close()
                process, line = _started()


def _followed(job: Job, line: Connection) -> bool:
    """See a job to its end; whether its process can go on. It cannot where it was cancelled."""
    while True:
        if not job.is_wanted:
            job.state = "cancelled"
            return False
        if not line.poll(LOOK_EVERY_S):
            continue
        kind, what = line.recv()
        if kind == "progress":
            job.progress = what
        elif kind == "answer":
            job.answer, job.state = what, "done"
            return True
        else:
            job.fault, job.state = what, "failed"
            return True


def _started() -> tuple[SpawnProcess, Connection]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=work, args=(there,), daemon=True)
    process.start()
    there.close()
    return process, here
