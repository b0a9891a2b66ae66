"""The worker process: it receives a task, sends its progress, and sends the answer."""

import os
import time
from multiprocessing.connection import Connection
from typing import Any

from kvsim.plumbing.errors import InputError

TELL_EVERY_S = 0.1


def work(line: Connection) -> None:
    """Run tasks until the other end of the pipe is closed. Sends (`progress`, (what, done, total)),
    (`answer`, it) and (`fault`, words).
    """
    import kvsim.report.page
    import kvsim.simulation  # noqa: F401 - while nobody waits yet

    os.nice(5)  # the page comes first
    while True:
        try:
            task = line.recv()
        except (EOFError, OSError):
            return
        try:
            line.send(_outcome(task, line))
        except (BrokenPipeError, ConnectionResetError):
            return


def _outcome(task: Any, line: Connection) -> tuple[str, Any]:
    told_s = 0.0

    def tell(what: str, done: int, total: int) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= TELL_EVERY_S:
            told_s = now_s
            line.send(("progress", (what, done, total)))

    try:
        return "answer", task.do(tell)
    except InputError as error:
        return "fault", str(error)
    except MemoryError:
        return "fault", "out of memory; ask for fewer requests or shorter ones"
    except OSError as error:
        if isinstance(error, BrokenPipeError | ConnectionResetError):
            raise
        return "fault", f"{error.filename or 'input'}: {error.strerror or error}"
    except Exception as error:  # the page goes on, and says it
        return "fault", f"fault of kvsim, please report it: {type(error).__name__}: {error}"
