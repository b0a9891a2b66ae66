"""The interface of every backend: each task is run, and its outcome is returned once."""

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
    """Options of a backend. jobs: number of worker processes (default: one for each processor; one
    without joblib). address: of a running cluster.
    """

    jobs: int | None = Field(None, ge=1)
    address: str | None = None

    @abstractmethod
    def run(self, tasks: Sequence[Runnable]) -> Iterator[TaskOutcome]:
        """Yield one outcome for each task, in any order. If a worker dies, its task is retried;
        after ATTEMPTS attempts the outcome is an error. Closing the iterator stops all running
        tasks.
        """
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this


def died(task: Runnable, how: object) -> TaskOutcome:
    """The outcome of a task that killed its worker too often."""
    return TaskOutcome(task.key, (), f"its worker died {ATTEMPTS} times: {how}", False, 0.0)


def check_reachable(cluster: str, address: str | None) -> None:
    """Raise InputError if nothing listens at [SCHEME://]HOST:PORT: a cluster's client would try for
    half a minute or more.
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
