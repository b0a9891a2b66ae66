"""The worker process: receives tasks, sends progress and answers."""

import os
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kvsim.explore.confined import ASK, MOST_MEMORY_BYTES, said
from kvsim.plumbing.errors import InputError

TELL_EVERY_S = 0.1


def work(line: Connection) -> None:
    """Run tasks until the other end of the pipe is closed. Sends (`progress`, (what, done, total)),
    (`preview`, answer for the first requests), (`answer`, answer) and (`fault`, message).
    """
    import kvsim.report.page
    import kvsim.simulation  # noqa: F401 - while nobody waits yet

    os.nice(10)  # the page comes first
    while True:
        try:
            task, confirmed = line.recv()
        except (EOFError, OSError):
            return
        try:
            line.send(("progress", ("starting", 0, 1)))
            _limit_memory(None if confirmed else MOST_MEMORY_BYTES)
            line.send(_outcome(task, line))
        except (BrokenPipeError, ConnectionResetError):
            return


def _outcome(task: Any, line: Connection) -> tuple[str, Any]:
    sent_s = 0.0

    def tell(what: str, done: int, total: int) -> None:
        nonlocal sent_s
        now_s = time.monotonic()
        if now_s - sent_s >= TELL_EVERY_S:
            sent_s = now_s
            line.send(("progress", (what, done, total)))

    try:
        return "answer", task.do(tell, lambda answer: line.send(("preview", answer)))
    except InputError as error:
        return "fault", said(error, task.table, task.base_table)
    except MemoryError:
        most = f"{MOST_MEMORY_BYTES >> 30} GiB are what the page takes unasked"
        return "fault", f"out of memory ({most}); ask for fewer requests or shorter ones, or {ASK}"
    except OSError as error:
        if isinstance(error, BrokenPipeError | ConnectionResetError):
            raise
        return "fault", f"a file cannot be read: {error.strerror or 'damaged'}"
    except Exception as error:  # the page goes on; the terminal of kvsim explore has the traceback
        traceback.print_exc()
        return "fault", f"fault of kvsim, please report it: {type(error).__name__}"


def _limit_memory(more_bytes: int | None) -> None:
    """Limit this process's memory to more_bytes more than now; None: no limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    soft = most
    if more_bytes is not None:
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
        except OSError:  # no Linux: the limit would count what the system maps for itself
            return
        soft = pages * resource.getpagesize() + more_bytes
        soft = soft if most == resource.RLIM_INFINITY else min(soft, most)
    resource.setrlimit(resource.RLIMIT_AS, (soft, most))
