"""The promise of every backend: each task is run, and its outcome comes back once."""

import socket
from abc import abstractmethod
from collections.abc import Iterator, Sequence

from pydantic import Field

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.whatif.task import Runnable, TaskOutcome

ANSWERS_WITHIN_S = 5.0
ATTEMPTS = 3  # a task that has taken its worker down so often is recorded as failed


class BackendOptions(Options):
    """jobs: worker processes (default: one a processor; one without joblib). address: of a running
    cluster.
    """

    jobs: int | None = Field(None, ge=1)
    address: str | None = None

    @abstractmethod
    def run(self, tasks: Sequence[Runnable]) -> Iterator[TaskOutcome]:
        """Outcomes as they come, in any order, one a task. A worker that dies costs its task an
        attempt; after ATTEMPTS of them the task's outcome says so. Closing the iterator stops all
        that is still running.
        """
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this


def died(task: Runnable, how: object) -> TaskOutcome:
    """The outcome of a task with a worker that died too often."""
    return TaskOutcome(task.key, (), f"its worker died {ATTEMPTS} times: {how}", False, 0.0)


def check_reachable(cluster: str, address: str | None) -> None:
    """InputError where nobody listens at [SCHEME://]HOST:PORT: a cluster's client itself tries for
    half a minute and more.
    """
    host, colon, port = (address or "").rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return  # a name that the client resolves, such as `auto`
    try:
        socket.create_connection((host, int(port)), timeout=ANSWERS_WITHIN_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no {cluster} cluster answers", where="--address", value=address, remedy=str(error)
        ) from None
