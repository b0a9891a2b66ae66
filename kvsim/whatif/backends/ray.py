"""Run tasks on a Ray cluster: the one at `--address`, or a local one with `--jobs` processors.

A task is run again elsewhere if its worker dies. The workers need kvsim installed and see the
scenario's files under the same paths.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need
from kvsim.whatif.backends.backend import ATTEMPTS, BackendOptions, check_reachable, died
from kvsim.whatif.task import Runnable, TaskOutcome, run_task


class Ray(BackendOptions):
    """`--backend ray`; `--address HOST:6379`, `ray://HOST:10001` or `auto` names a cluster."""

    def run(self, tasks: Sequence[Runnable]) -> Iterator[TaskOutcome]:
        need("ray", where="--backend", otherwise="--backend processes")
        import ray

        check_reachable("Ray", self.address)
        jobs = None if self.address else self.jobs or os.cpu_count() or 1
        try:
            ray.init(
                address=self.address, num_cpus=jobs, include_dashboard=False,
                log_to_driver=False, logging_level=logging.ERROR,
            )  # fmt: skip
        except (OSError, RuntimeError, ValueError) as error:
            raise InputError(
                "no Ray cluster answers", where="--address", value=self.address, remedy=str(error)
            ) from None
        try:
            remote: Any = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(run_task)
            waiting = {remote.remote(task): task for task in tasks}
            while waiting:
                (done, *_), _ = ray.wait(list(waiting), num_returns=1)
                task = waiting.pop(done)
                try:
                    outcome = ray.get(done)
                except ray.exceptions.WorkerCrashedError as error:
                    outcome = died(task, error)
                yield TaskOutcome(*outcome)
        finally:
            ray.shutdown()
