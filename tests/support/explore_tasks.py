"""Tasks that a worker process can import."""

import os
import time
from typing import Any, ClassVar

from kvsim.explore.task import Tell


class Bare:
    """Of no scenario."""

    table: ClassVar[dict[str, Any]] = {}
    base_table: ClassVar[dict[str, Any]] = {}
    num_points = 1


class Dies(Bare):
    """Takes its process with it."""

    def do(self, tell: Tell, show: Any = None) -> None:
        os._exit(3)


class Fails(Bare):
    """A fault of the program."""

    def do(self, tell: Tell, show: Any = None) -> None:
        raise ZeroDivisionError("one by nothing")


class Grows(Bare):
    """Takes so many bytes; without any, a minute."""

    def __init__(self, size: int) -> None:
        self.size = size

    def do(self, tell: Tell, show: Any = None) -> int:
        if not self.size:
            time.sleep(60)
        return len(bytearray(self.size))
