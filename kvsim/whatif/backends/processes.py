"""Run tasks in processes of this machine (joblib's loky), or in this process for one job."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need
from kvsim.whatif.backends.backend import ATTEMPTS, BackendOptions, died
from kvsim.whatif.task import Runnable, TaskOutcome, run_task

IDLE_S = 5  # after which a worker that nobody feeds ends, were its sweep killed


class Processes(BackendOptions):
    """`--backend processes`, the default; with `--jobs 1`, and without joblib, tasks run in this
    process.
    """

    def run(self, tasks: Sequence[Runnable]) -> Iterator[TaskOutcome]:
        if self.address is not None:
            raise InputError(
                "processes have no address",
                where="--address",
                value=self.address,
                remedy="leave it out, or give --backend dask or ray",
            )
        jobs = min(self.jobs or most_jobs(), max(1, len(tasks)))
        return map(run_task, tasks) if jobs == 1 else _pooled(tasks, jobs)


def most_jobs() -> int:
    """Default number of processes: one for each processor, or one without joblib."""
    return os.cpu_count() or 1 if find_spec("joblib") else 1


def _pooled(tasks: Sequence[Runnable], jobs: int) -> Iterator[TaskOutcome]:
    """Run tasks in a pool of processes, which is replaced whenever one of them has died.

    Which task killed a worker is unknown. So all running tasks are run again, one after the other
    in a pool of one process, where a crash affects only its own task.
    """
    need("joblib", where="--jobs", otherwise="--jobs 1")
    from joblib import Parallel, delayed
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    left = {task.key: task for task in tasks}
    attempts: Counter[str] = Counter()
    width = jobs
    try:
        while left:
            # After a death: the first few alone, then the rest side by side again.
            batch = list(left.values())[: 1 if width == 1 else None]
            pool = Parallel(
                n_jobs=max(2, width), backend="loky", return_as="generator_unordered",
                pre_dispatch=2 * width, batch_size=1, idle_worker_timeout=IDLE_S,
            )  # fmt: skip
            try:
                for outcome in pool(delayed(run_task)(task) for task in batch):
                    del left[outcome.key]
                    yield outcome
                width = jobs
            except TerminatedWorkerError as error:
                if width == 1:
                    (task,) = batch
                    attempts[task.key] += 1
                    if attempts[task.key] == ATTEMPTS:
                        yield died(left.pop(task.key), error)
                        width = jobs
                else:
                    width = 1
    except BaseException:  # closed early or interrupted: nothing is left running behind
        get_reusable_executor().shutdown(wait=True, kill_workers=True)
        raise
