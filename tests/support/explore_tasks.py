"""Tasks that a worker process can import."""

import os
from typing import NamedTuple

from kvsim.explore.task import Tell


class Dies(NamedTuple):
    """Takes its process with it."""

    def do(self, tell: Tell) -> None:
        os._exit(3)


class Fails(NamedTuple):
    """A fault of the program."""

    def do(self, tell: Tell) -> None:
        raise ZeroDivisionError("one by nothing")
