"""Worker processes and the jobs they do. A job that is cancelled ends at once: its process does."""

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
    """A task on its way. key: of what it answers. told: what is done, how much, of how much."""

    key: str
    task: WorkerTask
    state: Literal["waiting", "running", "done", "failed", "cancelled"] = "waiting"
    told: tuple[str, int, int] = ("waiting", 0, 1)
    answer: Any = None
    fault: str = ""
    asked_s: float = field(default_factory=time.monotonic)
    owners: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Nothing more will come of it."""
        return self.state in OVER

    def is_missed_by(self, owner: str) -> bool:
        """It was given up because nobody seemed to wait, and here is somebody who does."""
        return self.state == "cancelled" and owner in self.owners

    @property
    def is_wanted(self) -> bool:
        """Somebody waits for it."""
        return bool(self.owners) and time.monotonic() - self.asked_s < PATIENCE_S


class WorkerPool:
    """So many processes, started before they are needed. Each owner has one job at a time."""

    def __init__(self, size: int = 2) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def ask(self, owner: str, key: str, task: WorkerTask) -> Job:
        """The job of this key, begun if it is new or was given up; what the owner asked for before
        is given up.
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
        """The job of this key, if there is one. Who looks is still waiting for it."""
        with self._lock:
            job = self._jobs.get(key or "")
            if job is not None:
                job.asked_s = time.monotonic()
            return job

    def cancel(self, owner: str) -> None:
        """Give up what the owner asked for."""
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
        if kind == "told":
            job.told = what
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
