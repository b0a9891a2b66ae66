"""What a process of kvsim's own asks of its interpreter: to begin and to end without idle work."""

import atexit
import gc
import os

INTERRUPTED = 130  # the exit code for which shells report SIGINT


def lean() -> None:
    """For a process that runs one command; before numpy and pydantic are imported."""
    # numpy's library for matrices, of which there are none worth sharing out, keeps a thread for
    # each core that at first does nothing but turn: a tenth of a small run's time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # pydantic looks through all that is installed for plugins, of which kvsim has none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Next to nothing that reading and importing makes is garbage: look for it less often, and not
    # at all when everything ends.
    gc.set_threshold(200_000, 20, 20)
    atexit.register(gc.freeze)
