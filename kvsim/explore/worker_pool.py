"""Worker processes and their jobs. A cancelled job ends at once, together with its process."""

import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Literal

from kvsim.explore.confined import ASK, MOST_SECONDS, check_amount
from kvsim.explore.processes import start_loading
from kvsim.explore.task import WorkerTask
from kvsim.explore.worker import work
from kvsim.plumbing.errors import InputError

KEPT = 40  # answers
LOOK_EVERY_S = 0.05
# A page that asks no more is closed, and nobody waits for its job. (Browsers let a page that is not
# seen ask once a minute.)
PATIENCE_S = 90.0
OVER = ("done", "failed", "cancelled")


@dataclass
class Job:
    """A task in the pool. key: the name of its answer. progress: (what is being done, how much is
    done, of how much). preview: an answer for the first requests, until the full one exists.
    asked_s: the monotonic clock when a page last asked for it, in seconds. owners: the pages that
    wait for it. confirmed: the user pressed Run, so that its size is not limited.
    """

    key: str
    task: WorkerTask
    state: Literal["waiting", "running", "done", "failed", "cancelled"] = "waiting"
    progress: tuple[str, int, int] = ("waiting", 0, 1)
    answer: Any = None
    preview: Any = None
    fault: str = ""
    asked_s: float = field(default_factory=time.monotonic)
    owners: set[str] = field(default_factory=set)
    confirmed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the job has ended: by an answer, an error or cancellation."""
        return self.state in OVER

    def is_missed_by(self, owner: str) -> bool:
        """Whether the job was cancelled since no page seemed to wait for it, while `owner` still
        does.
        """
        return self.state == "cancelled" and owner in self.owners

    @property
    def is_wanted(self) -> bool:
        """Whether a page waits for the job and has asked for it lately."""
        return bool(self.owners) and time.monotonic() - self.asked_s < PATIENCE_S


class WorkerPool:
    """A pool of `size` worker processes, started in the background. A page has one job at a
    time.
    """

    def __init__(self, size: int = 2) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._free: SimpleQueue[_Worker] = SimpleQueue()
        self._threads = ThreadPoolExecutor(max(size, 1))  # a thread follows a worker's job
        for _ in range(size):
            self._threads.submit(self._add_worker)

    def ask(self, owner: str, key: str, task: WorkerTask, *, confirmed: bool = False) -> Job:
        """The job with this key, started if it is new, failed or was cancelled; the page's earlier
        job is cancelled. An unconfirmed job that is too large fails with a message.
        """
        with self._lock:
            self._leave(owner, key)
            job = self._jobs.get(key)
            new = job is None or job.state in ("failed", "cancelled")
            if job is None or new:
                job = self._jobs[key] = Job(key, task, confirmed=confirmed)
            job.confirmed = job.confirmed or confirmed
            self._jobs.move_to_end(key)
            job.owners.add(owner)
            job.asked_s = time.monotonic()
            if new and (fault := "" if confirmed else _too_much(task)):
                job.state, job.fault = "failed", fault
            elif new:  # with its owner: a job that nobody waits for is dropped
                self._threads.submit(self._run, job)
            for old in [k for k, each in self._jobs.items() if each.is_over][:-KEPT]:
                del self._jobs[old]
            return job

    def look(self, key: str | None) -> Job | None:
        """The job with this key, or None; marks it as still wanted by the page."""
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
        """Cancel all jobs and end all processes."""
        with self._lock:
            for job in self._jobs.values():
                job.owners.clear()
        self._threads.shutdown()
        while not self._free.empty():
            self._free.get().end()

    def _add_worker(self) -> None:
        self._free.put(_Worker())

    def _leave(self, owner: str, but: str | None) -> None:
        for job in self._jobs.values():
            if job.key != but:
                job.owners.discard(owner)

    def _run(self, job: Job) -> None:
        """Run one job in a free process; one that was cancelled or ended is replaced."""
        if not job.is_wanted:
            job.state = "cancelled"
            return
        worker = self._free.get()
        job.state = "running"
        try:
            worker.pipe.send((job.task, job.confirmed))
            reusable = _followed(job, worker.pipe)
        except (EOFError, OSError):
            job.fault, job.state = "the process that simulated it ended", "failed"
            reusable = False
        if not reusable:
            worker.end()
        self._free.put(worker if reusable else _Worker())


class _Worker:
    """A process that waits for tasks, and the pipe to it."""

    def __init__(self) -> None:
        context = start_loading()
        self.pipe, there = context.Pipe()
        self._process = context.Process(target=work, args=(there,), daemon=True)
        self._process.start()
        there.close()

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _too_much(task: WorkerTask) -> str:
    """The reason why an unconfirmed task is too large; empty if it is not."""
    try:
        check_amount(task.table, task.num_points)
    except InputError as error:
        return str(error)
    return ""


def _followed(job: Job, pipe: Connection) -> bool:
    """Follow a job to its end; returns whether its process can be used again: not after a job that
    was cancelled or took too long. Time counts from the first message of the process, which may
    still be loading kvsim.
    """
    began_s: float | None = None
    while True:
        taken_s = 0.0 if began_s is None else time.monotonic() - began_s
        if not job.confirmed and taken_s > MOST_SECONDS:
            job.fault = (
                f"stopped after {MOST_SECONDS:g} s, the most that the page takes unasked; {ASK}"
            )
            job.state = "failed"
            return False
        if not job.is_wanted:
            job.state = "cancelled"
            return False
        if not pipe.poll(LOOK_EVERY_S):
            continue
        kind, what = pipe.recv()
        began_s = time.monotonic() if began_s is None else began_s
        if kind == "progress":
            job.progress = what
        elif kind == "preview":
            job.preview = what
        elif kind == "answer":
            job.answer, job.preview, job.state = what, None, "done"
            return True
        else:
            job.fault, job.state = what, "failed"
            return True
