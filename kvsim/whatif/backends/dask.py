"""Run tasks on a Dask cluster: the one at `--address`, or a local one of `--jobs` processes.

Its scheduler runs a task again elsewhere when its worker dies. The workers need kvsim installed and
see the scenario's files under the same paths.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need
from kvsim.whatif.backends.backend import ATTEMPTS, BackendOptions, check_reachable, died
from kvsim.whatif.task import Runnable, TaskOutcome, run_task


class Dask(BackendOptions):
    """`--backend dask`; `--address tcp://HOST:8786` names its scheduler."""

    def run(self, tasks: Sequence[Runnable]) -> Iterator[TaskOutcome]:
        need("dask", "distributed", where="--backend", otherwise="--backend processes")
        import dask
        from distributed import Client, KilledWorker, LocalCluster, as_completed

        check_reachable("Dask", self.address)
        with dask.config.set({"distributed.scheduler.allowed-failures": ATTEMPTS - 1}):
            cluster: Any = None
            if self.address is None:
                cluster = LocalCluster(
                    n_workers=self.jobs or os.cpu_count() or 1,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                    silence_logs=logging.ERROR,
                )
            try:
                client = Client(cluster or self.address, set_as_default=False)
            except (OSError, TimeoutError, ValueError) as error:
                raise InputError(
                    "no Dask cluster answers",
                    where="--address",
                    value=self.address,
                    remedy=str(error),
                ) from None
            try:
                futures = {client.submit(run_task, task, key=task.key): task for task in tasks}
                for future in as_completed(list(futures), loop=client.loop):
                    task = futures.pop(future)
                    try:
                        outcome = future.result()
                    except KilledWorker as error:
                        outcome = died(task, error)
                    yield TaskOutcome(*outcome)
            finally:
                client.close()
                if cluster is not None:
                    cluster.close()
