"""Interpreter settings for a kvsim process: shorter start and end."""

import atexit
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 200_000, 20, 20  # thresholds of `gc`
INTERRUPTED = 130  # the exit code for which shells report SIGINT


def lean() -> None:
    """Set up a process that runs one command. Call it before numpy and pydantic are imported."""
    # numpy's library for matrices, of which there are none worth sharing out, keeps a thread for
    # each core that at first does nothing but turn: a tenth of a small run's time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # pydantic looks through all that is installed for plugins, of which kvsim has none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Next to nothing that reading and importing makes is garbage: look for it less often, and not
    # at all when everything ends.
    gc.set_threshold(*SELDOM)
    atexit.register(gc.freeze)


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """A context with garbage collection as rare as after `lean()`, for a process of any kind.

    While requests are made and simulated, hundreds of thousands of objects live, and hardly any
    garbage is in a reference cycle. The old thresholds come back at the end. Memory stays bounded,
    since cycles are still collected, only less often.
    """
    before = gc.get_threshold()
    if before[0]:  # 0: never, as somebody wants it
        gc.set_threshold(*(max(pair) for pair in zip(before, SELDOM, strict=True)))
    try:
        yield
    finally:
        gc.set_threshold(*before)
